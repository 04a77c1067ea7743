#include "shoal/os/process/time_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace shoal::os {
namespace {

constexpr std::uint64_t kShortestNs = 100'000;

/// sched_attr of sched_setattr(2), as far as all kernels have it; the C library's header may have
/// one, too.
struct Attributes {
  std::uint32_t size = sizeof(Attributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};
static_assert(sizeof(Attributes) == 48);

}  // namespace

bool shorten_time_slices() noexcept {
  constexpr unsigned kNoFlags = 0;
  Attributes now;
  if (::syscall(SYS_sched_getattr, 0, &now, sizeof now, kNoFlags) != 0) return false;
  if (now.policy != SCHED_OTHER && now.policy != SCHED_BATCH) return false;
  Attributes wanted;
  wanted.policy = now.policy;
  wanted.nice = now.nice;
  wanted.runtime = kShortestNs;
  return ::syscall(SYS_sched_setattr, 0, &wanted, kNoFlags) == 0;
}

}  // namespace shoal::os
