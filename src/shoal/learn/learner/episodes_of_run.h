// The finished episodes of a run whose environments are on several ranks: rank 0 counts those of
// all.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/collect/episode_stats.h"
#include "shoal/learn/learner/shards.h"

namespace shoal::learn {

class EpisodesOfRun {
 public:
  /// As they are before an iteration.
  explicit EpisodesOfRun(const collect::EpisodeStats& before);

  /// After it: has rank 0's know of the episodes that ended on all ranks, in the order of steps and
  /// environments, which it returns. All ranks call it; others return nothing.
  std::vector<collect::Episode> add_those_of_all(const Shards& shards,
                                                 collect::EpisodeStats& episodes) const;

 private:
  std::vector<collect::Episode> window_;
  std::int64_t count_;
};

}  // namespace shoal::learn
