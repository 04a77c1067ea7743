// The few instructions in which shared words do not fit together.
//
// A RobustLock is right for them: they are a thread's, last some ten nanoseconds, and the kernel
// hands the lock on at once when the thread is killed in them. Who finds it so is told, and puts in
// order what the words alone say.
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
