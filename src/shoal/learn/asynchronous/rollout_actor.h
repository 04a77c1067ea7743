// Collects whole rollouts with given weights: what acts for an asynchronous learner, in its process or
// in another.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shoal/env/space.h"
#include "shoal/learn/asynchronous/collected_rollout.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/rollout_source.h"

namespace shoal::learn {

class RolloutActor {
 public:
  /// Throws as Agent.
  RolloutActor(const env::Space& observation, const env::Space& action, int num_envs,
               const LearnerConfig& config, std::uint64_t seed);

  Agent& agent() noexcept { return agent_; }
  const Agent& agent() const noexcept { return agent_; }
  RolloutSource& source() noexcept { return source_; }
  const RolloutSource& source() const noexcept { return source_; }

  /// Room for one rollout, and moments of the shape of the agent's.
  CollectedRollout make_room() const;
  /// The bytes of all parameters.
  void load_weights(std::span<const std::byte> parameters);
  /// The `index`-th rollout, but for its version. Throws what the environments throw.
  void collect_into(CollectedRollout& collected, std::int64_t index);

 private:
  const LearnerConfig config_;
  const int num_envs_;
  Agent agent_;
  RolloutSource source_;
};

}  // namespace shoal::learn
