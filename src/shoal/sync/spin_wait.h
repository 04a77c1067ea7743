// The waiting that doorbell and gather have in common: spin for as long as the policy allows, then
// sleep.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::sync {

/// Spins on `ready` within the policy's budget, else calls `park`, and tells the policy how it
/// went. Who spins gives its CPU to any thread that wants to run there: the one that it waits for
/// may be among them. If it is another one, which computes, it keeps the CPU for milliseconds,
/// while a sleeper is woken at once; so the policy learns how long others ran.
///
/// `ready() -> bool` is a load with acquire; `park() -> WaitOutcome` sleeps until the deadline at
/// the latest.
template <class Policy, class Ready, class Park>
[[nodiscard]] WaitOutcome spin_then_park(Policy& policy, os::Deadline deadline, Ready ready,
                                         Park park) noexcept {
  constexpr int kPausesPerLookAtTheClock = 16;
  constexpr std::chrono::microseconds kYieldAfter{2};  // a shorter wait makes no system call
  if (ready()) return WaitOutcome::kReady;
  const os::Deadline start = os::Clock::now();
  const std::chrono::nanoseconds budget = policy.budget();
  std::chrono::nanoseconds longest_turn{0};  // of another thread
  if (budget > std::chrono::nanoseconds::zero()) {
    const os::Deadline spin_end = std::min(deadline, start + budget);
    for (;;) {
      for (int i = 0; i < kPausesPerLookAtTheClock; ++i) {
        if (ready()) {
          policy.record(os::Clock::now() - start, budget, true, longest_turn);
          return WaitOutcome::kReady;
        }
        pause();
      }
      const os::Deadline now = os::Clock::now();
      if (now >= spin_end) break;
      if (now - start > kYieldAfter) {
        std::this_thread::yield();
        longest_turn = std::max<std::chrono::nanoseconds>(longest_turn, os::Clock::now() - now);
      }
    }
  }
  const WaitOutcome outcome = park();
  policy.record(os::Clock::now() - start, budget, false, longest_turn);
  return outcome;
}

}  // namespace shoal::sync
