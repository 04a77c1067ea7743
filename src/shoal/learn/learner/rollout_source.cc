#include "shoal/learn/learner/rollout_source.h"

#include "shoal/os/error.h"

namespace shoal::learn {

RolloutSource::RolloutSource(const env::Space& observation, const env::Space& action, int num_envs,
                             const LearnerConfig& config, Agent& agent, int first_env)
    : observation_space_(observation),
      action_space_(action),
      num_envs_(num_envs),
      first_env_(first_env),
      config_(config),
      agent_(agent),
      standing_(num_envs, config) {}

void RolloutSource::attach(vector::VectorEnv& envs) {
  check_environments(envs, observation_space_, action_space_, num_envs_);
  collector_ = std::make_unique<collect::RolloutCollector>(
      envs,
      collect::RolloutCollectorParts{agent_.policy(), agent_.encoder(), agent_.decoder(),
                                     standing_.rewards, standing_.episodes},
      config_.num_steps);
}

void RolloutSource::begin(vector::VectorEnv& envs, std::int64_t turn) {
  attach(envs);
  collector_->reset(reset_seeds(agent_.policy().random(), turn, num_envs_, first_env_));
}

void RolloutSource::resume(vector::VectorEnv& envs, const vector::Batch& current) {
  attach(envs);
  collector_->resume(current);
}

collect::RolloutCollector& RolloutSource::collector() {
  if (collector_ == nullptr)
    throw InvalidState("iterate before the learner has environments: call begin() first");
  return *collector_;
}

void RolloutSource::save(LearnerState& state) const { standing_.save(config_, state); }

RolloutSource::Standing RolloutSource::read(const LearnerState& state) const {
  Standing standing = standing_;
  standing.load(config_, state);
  return standing;
}

}  // namespace shoal::learn
