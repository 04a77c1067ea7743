// One SpinPolicy for all waiters of a process. Waiters are many and short-lived, and a policy of
// its own would cost each of them a descriptor.
#pragma once

#include <chrono>
#include <mutex>

#include "shoal/sync/spin_policy.h"

namespace shoal::ipc {

/// Threads: any; who finds another thread at it does not spin, and does not record.
/// Processes, death: each process has its own two, which end with it.
/// Fork: a child never spins where another thread of its parent was at it during the fork.
class SharedSpinPolicy {
 public:
  /// For locks and permits, which are held briefly.
  static SharedSpinPolicy& of_holders();
  /// For waits that end when another process says so.
  static SharedSpinPolicy& of_signals();

  std::chrono::nanoseconds budget() noexcept {
    const std::unique_lock held(mutex_, std::try_to_lock);
    return held ? policy_.budget() : std::chrono::nanoseconds::zero();
  }
  void record(std::chrono::nanoseconds gap, std::chrono::nanoseconds budget, bool paid,
              std::chrono::nanoseconds longest_turn) noexcept {
    const std::unique_lock held(mutex_, std::try_to_lock);
    if (held) policy_.record(gap, budget, paid, longest_turn);
  }

 private:
  explicit SharedSpinPolicy(sync::SpinOptions options) : policy_(options) {}

  std::mutex mutex_;
  sync::SpinPolicy policy_;
};

}  // namespace shoal::ipc
