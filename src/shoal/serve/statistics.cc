#include "shoal/serve/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace shoal::serve {

int Histogram::bucket_of(std::uint64_t value) noexcept {
  if (value < (1u << kSubBits)) return static_cast<int>(value);
  const int octave = std::bit_width(value) - 1;
  const auto sub = static_cast<int>((value >> (octave - kSubBits)) & ((1u << kSubBits) - 1));
  return std::min(kBuckets - 1, ((octave - kSubBits + 1) << kSubBits) + sub);
}

double Histogram::upper_bound(int bucket) noexcept {
  if (bucket < (1 << kSubBits)) return bucket;
  const int octave = (bucket >> kSubBits) + kSubBits - 1;
  const int sub = bucket & ((1 << kSubBits) - 1);
  return std::ldexp(1.0 + (sub + 1) / 8.0, octave) - 1;
}

void Histogram::record(std::uint64_t value) noexcept {
  // Relaxed: see the class.
  counts_[bucket_of(value)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Distribution Histogram::summary(std::span<const Histogram* const> parts) noexcept {
  std::array<std::uint64_t, kBuckets> counts{};
  std::uint64_t sum = 0;
  Distribution all;
  for (const Histogram* part : parts) {
    sum += part->sum_.load(std::memory_order_relaxed);
    for (int i = 0; i < kBuckets; ++i) {
      counts[i] += part->counts_[i].load(std::memory_order_relaxed);
    }
  }
  for (int i = 0; i < kBuckets; ++i) {
    all.count += counts[i];
    if (counts[i] != 0) all.max = upper_bound(i);
  }
  if (all.count == 0) return all;
  all.mean = static_cast<double>(sum) / static_cast<double>(all.count);
  const auto percentile = [&](double share) {
    const auto rank = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(all.count)));
    std::uint64_t seen = 0;
    for (int i = 0; i < kBuckets; ++i) {
      seen += counts[i];
      if (seen >= rank) return upper_bound(i);
    }
    return all.max;
  };
  all.p50 = percentile(0.5);
  all.p90 = percentile(0.9);
  all.p99 = percentile(0.99);
  return all;
}

}  // namespace shoal::serve
