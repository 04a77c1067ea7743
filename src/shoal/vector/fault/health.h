// How the workers of a vector environment are, for whoever asks, whenever.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "shoal/vector/fault/fault_record.h"

namespace shoal::vector {

enum class WorkerState : std::uint8_t {
  kStarting,    // its process builds the environments
  kIdle,        // it waits for a command
  kStepping,    // it obeys one
  kHung,        // it does, and a deadline has passed
  kRestarting,  // it is gone, and the next one has not been started yet
  kDropped,     // it is gone for good
  kClosed,
};
std::string_view name(WorkerState state) noexcept;

/// One worker. A value.
struct WorkerHealth {
  int first_env = 0;
  int num_envs = 0;
  int pid = 0;  // 0: there is no process
  WorkerState state = WorkerState::kIdle;
  int env = -1;                      // whose code runs now; -1: nobody's, or unknown
  std::chrono::nanoseconds since{};  // how long it has been there; 0 unless it obeys a command
  std::uint64_t rss_bytes = 0;       // of its process, as the kernel counts; 0: unknown
  std::uint64_t restarts = 0;
  std::uint64_t recycles = 0;                       // for memory_limit
  Fault last_fault;                                 // may be null
  std::array<std::uint64_t, kFaultKinds> faults{};  // by kind
};

/// What the caller's thread tells of its workers, and any thread may ask.
///
/// Threads: any; the lock is held for a copy, never for a wait.
/// Processes, death: the caller's own, and ends with it.
class HealthTable {
 public:
  explicit HealthTable(std::size_t workers) : workers_(workers) {}

  void change(int worker, const std::function<void(WorkerHealth&)>& change) {
    const std::lock_guard lock(mutex_);
    change(workers_[static_cast<std::size_t>(worker)]);
  }
  void count_fault(int worker, const Fault& fault) {
    change(worker, [&](WorkerHealth& health) {
      health.last_fault = fault;
      ++health.faults[static_cast<std::size_t>(fault->kind)];
    });
  }
  std::vector<WorkerHealth> copy() const {
    const std::lock_guard lock(mutex_);
    return workers_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<WorkerHealth> workers_;
};

/// Resident memory of a process in bytes; 0 when it is gone or not visible.
std::uint64_t rss_of(int pid) noexcept;

}  // namespace shoal::vector
