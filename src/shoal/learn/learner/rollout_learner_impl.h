// The parts of a RolloutLearner, for its own source files.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/rollout_learner.h"
#include "shoal/learn/learner/rollout_source.h"

namespace shoal::learn {

struct RolloutLearner::Impl {
  Impl(const env::Space& observation, const env::Space& action, int num_envs,
       const LearnerConfig& config, std::uint64_t seed, const MakeUpdate& make_update,
       const Recurrence& recurrence)
      : config(config),
        num_envs(num_envs),
        agent(observation, action, config, seed, recurrence),
        source(observation, action, num_envs, config, agent),
        update(make_update(agent.policy())) {
    agent.policy().remember(num_envs);
  }

  LearnerConfig config;
  int num_envs;
  Agent agent;
  RolloutSource source;
  std::unique_ptr<RolloutUpdate> update;
  std::int64_t steps = 0;
  std::int64_t iteration = 0;
};

}  // namespace shoal::learn
