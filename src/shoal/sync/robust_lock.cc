#include "shoal/sync/robust_lock.h"

#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/sync/atomics.h"

namespace shoal::sync {
namespace {

void check(int error, const char* attempt) {
  if (error != 0) throw SystemError(attempt, error);
}

int lock_until(pthread_mutex_t& mutex, os::Deadline deadline) {
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer (up to GCC 12) does not know the other, nor that timedlock may give the lock of
  // somebody dead.
  for (;;) {
    const int error = ::pthread_mutex_trylock(&mutex);
    if (error != EBUSY) return error;
    if (os::Clock::now() >= deadline) return ETIMEDOUT;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
#else
  const std::timespec until = os::to_timespec(deadline.time_since_epoch());
  return ::pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
#endif
}

}  // namespace

void RobustLock::init() {
  pthread_mutexattr_t kind;
  check(::pthread_mutexattr_init(&kind), "prepare a lock between processes");
  ::pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
  ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  const int error = ::pthread_mutex_init(&mutex_, &kind);
  ::pthread_mutexattr_destroy(&kind);
  check(error, "make a lock between processes");
}

LockOutcome RobustLock::lock(os::Deadline deadline) noexcept {
  return outcome_of(deadline == os::kNoDeadline ? ::pthread_mutex_lock(&mutex_)
                                                : lock_until(mutex_, deadline));
}

std::optional<LockOutcome> RobustLock::try_lock() noexcept {
  const int error = ::pthread_mutex_trylock(&mutex_);
  if (error == EBUSY) return std::nullopt;
  return outcome_of(error);
}

LockOutcome RobustLock::spin_lock() noexcept {
  constexpr int kTries = 64;  // a few microseconds
  for (int i = 0; i < kTries; ++i) {
    if (const auto outcome = try_lock()) return *outcome;
    for (int pauses = 0; pauses < 8; ++pauses) pause();
  }
  return lock();
}

LockOutcome RobustLock::outcome_of(int error) noexcept {
  if (error == ETIMEDOUT) return LockOutcome::kTimedOut;
  if (error == EOWNERDEAD) {
    ::pthread_mutex_consistent(&mutex_);
    return LockOutcome::kOwnerDied;
  }
  SHOAL_CHECK(error == 0,
              "a RobustLock that was not initialised, or is locked twice by one thread");
  return LockOutcome::kLocked;
}

void RobustLock::unlock() noexcept {
  SHOAL_CHECK(::pthread_mutex_unlock(&mutex_) == 0, "unlock of a RobustLock that is not held");
}

}  // namespace shoal::sync
