#include "shoal/vector/local/share_policy.h"

#include <algorithm>
#include <cmath>

#include "shoal/sync/chunk_range.h"

namespace shoal::vector {
namespace {

constexpr double kWakePaysNs = 40'000;  // what a sleeper must save
constexpr double kRingPaysNs = 2'000;   // what one that spins must save
constexpr double kBackToBackNs =
    200'000;                             // a round and what follows it, for a helper to stay awake
constexpr double kShortChunkNs = 2'000;  // a chunk is at least that much work
constexpr double kLongChunkNs = 50'000;  // and at most that much
constexpr int kChunksPerThread = 4;      // so that who is held up loses a quarter of its share
constexpr int kWholeLines = 16;          // chunks of this many items share few cache lines
constexpr int kMinPatience = 64;
constexpr int kMaxPatience = 8192;
constexpr int kPaid = 8;       // rounds that make a woken helper worth it
constexpr int kSleepyMax = 8;  // of the memory of sleeps

}  // namespace

SharePolicy::SharePolicy(int items, int threads, int cpus)
    : items_(items), threads_(threads), cpus_(cpus) {}

int SharePolicy::limit() const noexcept {
  const int useful = sleepy_ > kSleepyMax / 2 ? threads_ : std::min(threads_, cpus_);
  return std::max(0, std::min(useful, items_) - 1);
}

void SharePolicy::begin_plan() noexcept {
  if (patience_ > 0) --patience_;
}

bool SharePolicy::wants_another(int helpers, bool awake) noexcept {
  if (cost_ns_ == 0) return true;
  const double now = cost_ns_ / (helpers + 1);
  const double saving = now - cost_ns_ / (helpers + 2);
  if (awake) return saving >= kRingPaysNs;
  if (sleepy_ > kSleepyMax / 2) return now >= kWakePaysNs;
  return saving >= kWakePaysNs || try_waking(saving);
}

bool SharePolicy::try_waking(double saving_ns) noexcept {
  if (saving_ns < kRingPaysNs || cost_ns_ + gap_ns_ > kBackToBackNs) return false;
  if (trying_) {  // it sleeps again: was it worth it?
    trying_ = false;
    const bool paid = helped_ >= kPaid;
    next_patience_ = paid ? kMinPatience : std::min(2 * next_patience_, kMaxPatience);
    patience_ = paid ? 0 : next_patience_;
  }
  if (patience_ > 0) return false;
  trying_ = true;
  helped_ = 0;
  return true;
}

Share SharePolicy::cut(int helpers) const noexcept {
  if (helpers == 0) return {.helpers = 0, .chunk = items_, .chunks = 1};
  int chunk = (items_ + helpers) / (helpers + 1);
  if (cost_ns_ > 0) {
    const double goal_ns =
        std::clamp(cost_ns_ / ((helpers + 1) * kChunksPerThread), kShortChunkNs, kLongChunkNs);
    const double per_item = cost_ns_ / items_;
    chunk = std::min(chunk, std::max(1, static_cast<int>(std::min(goal_ns / per_item, 1e9))));
  }
  if (chunk > kWholeLines) chunk -= chunk % kWholeLines;
  const int least = (items_ + sync::ChunkRange::kMaxChunks - 1) / sync::ChunkRange::kMaxChunks;
  chunk = std::max(chunk, least);
  return {.helpers = helpers, .chunk = chunk, .chunks = (items_ + chunk - 1) / chunk};
}

void SharePolicy::record(std::uint64_t busy_ns, std::uint64_t gap_ns, bool helped) noexcept {
  // One round in which somebody was preempted teaches little.
  const auto smooth = [](double& mean, double now) {
    mean = mean == 0 ? now : mean + (std::min(now, 4 * mean) - mean) / 8;
  };
  smooth(cost_ns_, std::max(1.0, static_cast<double>(busy_ns)));
  smooth(gap_ns_, std::max(1.0, static_cast<double>(gap_ns)));
  helped_ += helped ? 1 : 0;
}

void SharePolicy::record_sleep(bool slept) noexcept {
  sleepy_ = slept ? std::min(sleepy_ + 3, kSleepyMax) : std::max(sleepy_ - 1, 0);
}

}  // namespace shoal::vector
