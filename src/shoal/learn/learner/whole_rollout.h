// The rollouts of all ranks, on each of them.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "shoal/collect/rollout.h"
#include "shoal/learn/learner/shards.h"

namespace shoal::learn {

class WholeRollout {
 public:
  /// One rollout of all environments of the run, in their order, of which `here` is this rank's
  /// part; until the next call. All ranks of a group of several call it.
  collect::Rollout& of(const Shards& shards, collect::Rollout& here);

 private:
  std::optional<collect::Rollout> all_;
  std::vector<std::byte> mine_;
};

}  // namespace shoal::learn
