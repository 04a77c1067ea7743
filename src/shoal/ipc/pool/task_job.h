// The outcomes of a group of tasks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "shoal/ipc/heap/block.h"
#include "shoal/os/clock.h"

namespace shoal::ipc {

using TaskBytes = std::vector<std::byte>;

/// The outcomes of tasks 0, 1, … of one call; a resource, shared by the caller and the scheduler.
///
/// Threads: any.
/// Processes: of the pool's owner alone.
/// Death: of a worker: the task that it had begun fails (TaskScheduler).
/// Invariants: every task that was added gets exactly one outcome, at the latest when the scheduler
/// is destroyed.
class TaskJob {
 public:
  struct Outcome {
    std::uint32_t index = 0;
    bool ok = false;
    TaskBytes bytes;  // the value, or the exception
    Block held = {};  // holds the blocks that `bytes` name; none where they name none
  };
  enum class Wait : std::uint8_t { kReady, kTimedOut, kExhausted };

  /// Says how many tasks there are, once that is known.
  void seal(std::size_t length);

  /// Whether there is an outcome for all tasks.
  bool finished() const;
  /// The task whose failure came first.
  std::optional<std::uint32_t> first_failure() const;

  [[nodiscard]] bool wait(os::Deadline deadline) const;
  /// Takes the outcome of task `index`; kExhausted when there is no such task, or it was taken.
  [[nodiscard]] Wait take(std::uint32_t index, Outcome& out, os::Deadline deadline);
  /// Takes the outcome that came first of those not taken.
  [[nodiscard]] Wait take_any(Outcome& out, os::Deadline deadline);

  /// For the scheduler: stores an outcome. Returns whether the job is finished by it.
  bool set(Outcome outcome);

 private:
  struct Slot {
    enum State : std::uint8_t { kEmpty, kFull, kTaken } state = kEmpty;
    bool ok = false;
    TaskBytes bytes;
    Block held;
  };

  bool finished_locked() const noexcept { return length_ && done_ >= *length_; }
  template <class Ready>
  bool wait_until(std::unique_lock<std::mutex>& lock, os::Deadline deadline, Ready ready) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::deque<std::uint32_t> arrived_;
  std::size_t done_ = 0;
  std::optional<std::size_t> length_;
  std::optional<std::uint32_t> first_failure_;
};

}  // namespace shoal::ipc
