// The waiting that doorbell and gather have in common: spin for as long as the policy allows, then
// sleep.
#pragma once

#include <algorithm>
#include <chrono>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::sync {

/// Spins on `ready` within the policy's budget, else calls `park`, and tells the policy how it
/// went.
///
/// `ready() -> bool` is a load with acquire; `park() -> WaitOutcome` sleeps until the deadline at
/// the latest.
template <class Policy, class Ready, class Park>
[[nodiscard]] WaitOutcome spin_then_park(Policy& policy, os::Deadline deadline, Ready ready,
                                         Park park) noexcept {
  constexpr int kPausesPerLookAtTheClock = 16;
  if (ready()) return WaitOutcome::kReady;
  const os::Deadline start = os::Clock::now();
  const std::chrono::nanoseconds budget = policy.budget();
  if (budget > std::chrono::nanoseconds::zero()) {
    const os::Deadline spin_end = std::min(deadline, start + budget);
    do {
      for (int i = 0; i < kPausesPerLookAtTheClock; ++i) {
        if (ready()) {
          policy.record(os::Clock::now() - start, budget, true);
          return WaitOutcome::kReady;
        }
        pause();
      }
    } while (os::Clock::now() < spin_end);
  }
  const WaitOutcome outcome = park();
  policy.record(os::Clock::now() - start, budget, false);
  return outcome;
}

}  // namespace shoal::sync
