// One SpinPolicy for all waiters of a process: they are many and short-lived, and each policy of
// its own would hold a descriptor.
#pragma once

#include <chrono>
#include <mutex>

#include "shoal/sync/spin_policy.h"

namespace shoal::ipc {

/// Threads: any.
/// Fork: a child whose parent was learning in another thread never spins.
class SharedSpinPolicy {
 public:
  /// For locks and permits, which are held briefly.
  static SharedSpinPolicy& of_holders();
  /// For what is waited for until somebody says so.
  static SharedSpinPolicy& of_signals();

  std::chrono::nanoseconds budget() noexcept {
    const std::unique_lock held(mutex_, std::try_to_lock);
    return held ? policy_.budget() : std::chrono::nanoseconds::zero();
  }
  void record(std::chrono::nanoseconds gap, std::chrono::nanoseconds budget, bool paid) noexcept {
    const std::unique_lock held(mutex_, std::try_to_lock);
    if (held) policy_.record(gap, budget, paid);
  }

 private:
  explicit SharedSpinPolicy(sync::SpinOptions options) : policy_(options) {}

  std::mutex mutex_;
  sync::SpinPolicy policy_;
};

}  // namespace shoal::ipc
