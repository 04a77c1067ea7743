// The close() of a vector environment: how long it waits for its workers, and what it has to tell.
#pragma once

#include <string>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/process/error_report.h"
#include "shoal/vector/patience.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// What close() cannot throw is kept here until somebody asks; what nobody has asked for is logged
/// when this goes.
///
/// Threads: the caller's only.
/// Processes: the caller's.
/// Death: of a worker while it is waited for: close() goes on with the others.
class Closing {
 public:
  Closing() = default;
  ~Closing();
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

  /// Until when to wait for a worker before goes_on() is asked: not at all after an interrupt.
  os::Deadline wait_until(const Patience& patience) const {
    return outcome_.interrupt ? os::Clock::now() : patience.slice_end();
  }
  /// Whether that wait is to be continued: neither the deadline has passed, nor has `patience.check`
  /// thrown, now or before. What it throws ends the waits for the other workers, too.
  bool goes_on(const Patience& patience) noexcept;

  /// Whether `patience.check` has thrown.
  bool interrupted() const { return outcome_.interrupt != nullptr; }

  /// What an environment of `worker` raised while it was closed.
  void add(const std::string& worker, process::ErrorReport report) {
    outcome_.failures.emplace_back(worker, std::move(report));
  }

  VectorEnv::CloseOutcome take() { return std::exchange(outcome_, {}); }

 private:
  VectorEnv::CloseOutcome outcome_;
};

}  // namespace shoal::vector
