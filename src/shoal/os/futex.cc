#include "shoal/os/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "shoal/os/error.h"

namespace shoal::os {

FutexOutcome futex_wait(const FutexWord& word, std::uint32_t expected, Deadline deadline) noexcept {
  std::timespec until{};
  std::timespec* timeout = nullptr;
  if (deadline != kNoDeadline) {
    if (deadline.time_since_epoch().count() <= 0) return FutexOutcome::kTimedOut;
    until = to_timespec(deadline.time_since_epoch());
    timeout = &until;
  }
  // WAIT_BITSET takes an absolute CLOCK_MONOTONIC time; WAIT takes a relative one, which would
  // drift over interruptions.
  if (::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, timeout, nullptr,
                FUTEX_BITSET_MATCH_ANY) == 0) {
    return FutexOutcome::kWoken;
  }
  switch (errno) {
    case EAGAIN:
      return FutexOutcome::kChanged;
    case ETIMEDOUT:
      return FutexOutcome::kTimedOut;
    case EINTR:
      return FutexOutcome::kInterrupted;
  }
  SHOAL_CHECK(false, "futex_wait on an address that is no futex");
  return FutexOutcome::kWoken;
}

int futex_wake(FutexWord& word, int count) noexcept {
  const long woken = ::syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0);
  SHOAL_CHECK(woken >= 0, "futex_wake on an address that is no futex");
  return static_cast<int>(woken);
}

}  // namespace shoal::os
