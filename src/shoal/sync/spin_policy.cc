#include "shoal/sync/spin_policy.h"

#include <algorithm>

#include "shoal/os/limits/affinity.h"

namespace shoal::sync {
namespace {

using std::chrono::nanoseconds;

constexpr int kMaxMisses = 8;  // at worst one spin in 2^8 waits
// About what waking somebody takes. Who gives up sooner pays that anyway; and two who answer each
// other quickly would each give up while the other is woken, in turns.
constexpr nanoseconds kWakeUp = std::chrono::microseconds(100);

}  // namespace

SpinPolicy::SpinPolicy(SpinOptions options) : SpinPolicy(options, CpuLoad(), os::allowed_cpus()) {}

SpinPolicy::SpinPolicy(SpinOptions options, CpuLoad load, int allowed_cpus)
    : cap_(options.group_size > allowed_cpus ? nanoseconds::zero() : options.cap),
      gap_(cap_),
      patience_(options.patience),
      load_(std::move(load)) {}

nanoseconds SpinPolicy::budget() noexcept {
  if (cap_ <= nanoseconds::zero() || load_.crowded()) return nanoseconds::zero();
  if (skip_ > 0) {
    --skip_;
    return nanoseconds::zero();
  }
  return std::min(std::max(2 * gap_, kWakeUp), cap_);
}

void SpinPolicy::record(nanoseconds gap, nanoseconds budget, bool paid,
                        nanoseconds longest_turn) noexcept {
  // The newest wait counts a quarter; a wait far beyond the cap says no more than that it was too
  // long.
  gap_ += (std::min(gap, 4 * cap_) - gap_) / 4;
  if (budget <= nanoseconds::zero()) return;
  if (paid && longest_turn < patience_) {
    misses_ = 0;
    return;
  }
  misses_ = std::min(misses_ + 1, kMaxMisses);
  skip_ = (1 << misses_) - 2;  // a single miss is forgiven
}

}  // namespace shoal::sync
