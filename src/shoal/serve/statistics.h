// What a model server counts, in shared memory. Its one executor adds; any process may read, also
// after the server's death.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <type_traits>

namespace shoal::serve {

/// A value copied out of a Histogram.
struct Distribution {
  std::uint64_t count = 0;
  double mean = 0;  // the unit of what was recorded
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;  // upper bound of the highest bucket in use
};

/// Counts values by size, in 8 buckets an octave: a percentile is at most 13 % too high. Lives in
/// shared memory; all zero bytes is empty.
///
/// Threads, processes: one records, any read; a reader may see a value counted and not yet summed.
/// Memory ordering: relaxed; it orders nothing.
/// Death: on any line; at most the value being recorded is lost.
class Histogram {
 public:
  void record(std::uint64_t value) noexcept;
  Distribution summary() const noexcept {
    const Histogram* const self = this;
    return summary({&self, 1});
  }
  /// Of all `parts` together.
  static Distribution summary(std::span<const Histogram* const> parts) noexcept;

 private:
  static constexpr int kSubBits = 3;
  static constexpr int kBuckets = (40 << kSubBits);

  static int bucket_of(std::uint64_t value) noexcept;
  static double upper_bound(int bucket) noexcept;

  std::atomic<std::uint64_t> sum_;
  std::array<std::atomic<std::uint64_t>, kBuckets> counts_;
};

/// The counters of one model; lives in shared memory.
/// Threads, processes, death: as Histogram.
struct ModelStatistics {
  static constexpr std::size_t kMaxNameBytes = 63;

  char name[kMaxNameBytes + 1];
  std::atomic<std::uint64_t> version;       // of the weights in use
  std::atomic<std::uint64_t> updates;       // of weights
  std::atomic<std::uint64_t> rows;          // that were answered, well or badly
  std::atomic<std::uint64_t> batches;       // that the model was called with
  std::atomic<std::uint64_t> padded_rows;   // computed for nobody, to fill a bucket
  std::atomic<std::uint64_t> failed_rows;   // answered with a ModelError
  std::atomic<std::uint64_t> expired_rows;  // whose deadline had passed
  std::atomic<std::uint64_t> dropped_rows;  // cancelled, or of a dead client
  Histogram batch_rows;
  Histogram queue_wait_ns;  // from the row's submission until its batch left
  Histogram run_ns;         // one batch
  Histogram latency_ns;     // from the row's submission until its reply
};
static_assert(std::is_standard_layout_v<ModelStatistics>);

/// Adds; relaxed: a counter orders nothing.
inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
  counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace shoal::serve
