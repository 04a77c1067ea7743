// When a rank of several has collected enough: at the end of its rollout, or once so many others
// are through with theirs that those who are slow are not waited for.
//
// Threads: one at a time. All ranks of a group call collect() as often as the others.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/collect/rollout.h"
#include "shoal/collect/rollout_collector.h"
#include "shoal/learn/learner/shards.h"

namespace shoal::learn {

class RolloutRounds {
 public:
  /// Args: fraction: of the ranks, which is enough; 1: all are waited for.
  RolloutRounds(const Shards& shards, double fraction);

  collect::Rollout& collect(collect::RolloutCollector& collector, std::int64_t iteration,
                            std::uint64_t first_step);

  /// Steps that the last rollouts of all ranks lack. Nothing where all are waited for.
  std::optional<std::int64_t> cut() const noexcept { return cut_; }

 private:
  Shards shards_;
  int needed_ = 0;  // ranks; 0: all are waited for
  std::optional<std::int64_t> cut_;
};

}  // namespace shoal::learn
