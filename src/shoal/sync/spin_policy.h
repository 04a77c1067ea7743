// How long a waiter may spin before it sleeps.
//
// Spinning saves a wake-up of 50–90 µs when the wait is short, and takes a CPU from somebody else
// when it is not. So a waiter spins for at most 2 × the recent gap, but for as long as a wake-up
// takes where the gap is shorter, and never longer than the cap; it spins less and less often while
// its spins do not pay; and not at all while more threads are runnable than there are CPUs for
// them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "shoal/sync/cpu_load.h"

namespace shoal::sync {

struct SpinOptions {
  /// The longest spin; zero never spins.
  std::chrono::nanoseconds cap = std::chrono::microseconds(400);
  /// Threads that may run at the same time in this group of waiters, all processes together: with
  /// more than allowed_cpus() of them nobody spins. 1 when unknown.
  int group_size = 1;
  /// A spin during which another thread of this CPU ran for so long at a time does not pay: for
  /// waiters that do not wait for threads of their own CPU.
  std::chrono::nanoseconds patience = std::chrono::nanoseconds::max();
};

/// What one waiter has learned; process-local.
///
/// Threads: one waiter, one policy.
/// Fork: the child goes on with a copy of what was learned.
class SpinPolicy {
 public:
  explicit SpinPolicy(SpinOptions options = {});
  /// With a load to look at and a number of CPUs given by the caller, for tests.
  SpinPolicy(SpinOptions options, CpuLoad load, int allowed_cpus);

  /// How long the wait that begins now may spin, at most.
  std::chrono::nanoseconds budget() noexcept;

  /// How the wait that budget() was asked for went: how long it lasted in all, and whether it ended
  /// while spinning. `longest_turn`: of another thread on this CPU, meanwhile.
  void record(std::chrono::nanoseconds gap, std::chrono::nanoseconds budget, bool paid,
              std::chrono::nanoseconds longest_turn = {}) noexcept;

 private:
  std::chrono::nanoseconds cap_;
  std::chrono::nanoseconds gap_;
  std::chrono::nanoseconds patience_;
  CpuLoad load_;
  int misses_ = 0;  // spins in a row that did not pay
  int skip_ = 0;    // waits that will not spin before the next try
};

}  // namespace shoal::sync
