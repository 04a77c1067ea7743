// What an engine knows of the episodes that its environments are in: counts, statistics and reward
// clip of all, time limit of Python environments. Native ones keep their own (env/batch_of.h).
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/env/episode_options.h"
#include "shoal/process/codec.h"
#include "shoal/vector/step/rows.h"

namespace shoal::vector {

/// Statistics, time limit and reward clip of a stepper's environments; costs nothing where none of
/// them is wanted. Frame stacks are not its business.
///
/// Threads: one object belongs to one stepper; its threads may use it for different environments at
/// the same time.
/// Processes, death: the stepper's own, and ends with it.
class Episodes {
 public:
  Episodes() = default;
  /// Of rows [lo, lo + count).
  Episodes(const env::EpisodeOptions& options, const Rows& rows, int lo, int count);

  /// Environment `i` was reset.
  void begin(int i) noexcept {
    if (counts_) start(i);
  }

  /// Environments [lo, hi) were stepped and their rows are written: truncates what is at the limit,
  /// writes the statistics of what ended, clips the rewards.
  void stepped(int lo, int hi) noexcept {
    if (counts_) count(lo, hi);
    if (clips_) clip(lo, hi);
  }

  /// What decides how environment `i` goes on.
  void save(int i, process::ByteWriter& out) const;
  void load(int i, process::ByteReader& in);

 private:
  struct Episode {
    double total = 0;
    std::int64_t length = 0;
    std::uint64_t start_ns = 0;
  };

  void start(int i) noexcept;
  void count(int lo, int hi) noexcept;
  void clip(int lo, int hi) noexcept;

  bool counts_ = false;
  bool clips_ = false;
  std::int64_t limit_ = 0;
  double low_ = 0;
  double high_ = 0;
  Rows rows_;
  int lo_ = 0;
  std::vector<Episode> episodes_;
};

}  // namespace shoal::vector
