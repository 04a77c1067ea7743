// The parts of a RolloutLearner, for its own source files.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/rollout_learner.h"
#include "shoal/learn/learner/rollout_rounds.h"
#include "shoal/learn/learner/rollout_source.h"
#include "shoal/learn/learner/update_sharing.h"

namespace shoal::learn {

struct RolloutLearner::Impl {
  Impl(const env::Space& observation, const env::Space& action, const Shards& shards,
       const LearnerConfig& config, std::uint64_t seed, const MakeUpdate& make_update,
       const Recurrence& recurrence, const RankOptions& ranks)
      : config(config),
        shards(shards),
        agent(observation, action, config, seed, recurrence),
        source(observation, action, shards.envs_here(), config, agent, shards.first_env()),
        update(make_update(agent.policy())),
        sharing(shards, ranks.split_update),
        rounds(shards, ranks.sync_fraction) {
    agent.policy().act_from(shards.first_env());
    agent.policy().remember(shards.envs_here());
    split();
  }

  /// Has encoder and rewards keep the moments of shards apart, from what they have agreed on.
  void split() {
    if (shards.whole()) return;
    agent.encoder().split(shards.here());
    source.rewards().split(shards.here());
  }
  /// Brings the running moments of all shards together, after an iteration.
  void agree();

  LearnerConfig config;
  Shards shards;
  Agent agent;
  RolloutSource source;
  std::unique_ptr<RolloutUpdate> update;
  UpdateSharing sharing;
  RolloutRounds rounds;
  std::int64_t steps = 0;
  std::int64_t iteration = 0;
};

}  // namespace shoal::learn
