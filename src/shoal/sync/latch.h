// The lock for the few instructions in which shared words contradict each other.
//
// A RobustLock is right for them. One thread executes them, in some ten nanoseconds, and when it is
// killed in them the kernel passes the lock on at once. The next holder is told so, and repairs the
// words from what they say.
#pragma once

#include "shoal/sync/robust_lock.h"

namespace shoal::sync {

/// Holds `lock`, any class with the interface of RobustLock, for its own lifetime. `repair` runs
/// first when the holder before died.
template <class Lock>
class [[nodiscard]] LatchGuard {
 public:
  template <class Repair>
  LatchGuard(Lock& lock, Repair repair) noexcept : lock_(lock) {
    if (lock.spin_lock() == LockOutcome::kOwnerDied) repair();
  }
  ~LatchGuard() { lock_.unlock(); }
  LatchGuard(const LatchGuard&) = delete;
  LatchGuard& operator=(const LatchGuard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace shoal::sync
