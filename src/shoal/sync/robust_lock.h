// A lock between processes that survives the death of its holder.
//
// Processes: lies in shared memory; every process that maps it may lock it. It is the kernel's
// robust futex, through glibc's robust, process-shared mutex, so parent and workers must use the
// same C library.
// Invariants: held by at most one thread of all processes; zero bytes are not a lock: init() first.
// Memory ordering: what was written before unlock() is seen after the next lock().
// Death: the kernel unlocks what a dying thread holds, and the next lock() says kOwnerDied. What
// the lock protects is then as the dead one left it: keep it whole at every line, or repair it.
// Fork: a child does not own what its parent's thread holds.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <optional>

#include "shoal/os/clock.h"

namespace shoal::sync {

enum class LockOutcome { kLocked, kOwnerDied, kTimedOut };

class alignas(64) RobustLock {
 public:
  /// Makes the lock, once, before any other process can see it. Throws SystemError.
  void init();

  /// kLocked and kOwnerDied: the caller holds it. Locking it twice in one thread is a bug and
  /// aborts.
  [[nodiscard]] LockOutcome lock(os::Deadline deadline = os::kNoDeadline) noexcept;
  /// The same without waiting; nothing when somebody else holds it.
  [[nodiscard]] std::optional<LockOutcome> try_lock() noexcept;
  /// Tries for as long as a short critical section of another CPU takes, then waits: for locks that
  /// are held for less than a sleep and a wake-up cost.
  [[nodiscard]] LockOutcome spin_lock() noexcept;
  void unlock() noexcept;

 private:
  LockOutcome outcome_of(int error) noexcept;

  pthread_mutex_t mutex_;
};
static_assert(sizeof(RobustLock) == 64);

}  // namespace shoal::sync
