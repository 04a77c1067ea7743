#include "shoal/learn/impala/impala.h"

#include "shoal/learn/asynchronous/off_policy_advantages.h"
#include "shoal/learn/impala/impala_update.h"

namespace shoal::learn {

void validate(const ImpalaConfig& config) {
  validate(static_cast<const LearnerConfig&>(config));
  validate(static_cast<const AsynchronousOptions&>(config));
}

void ImpalaUpdate::estimate(collect::Rollout& rollout) {
  estimate_off_policy(rollout, policy_, config_, options_, advantages_);
}

Impala::Impala(const env::Space& observation, const env::Space& action, int num_envs,
               const ImpalaConfig& config, std::uint64_t seed)
    : AsynchronousLearner(observation, action, num_envs, validated(config), config, seed,
                          [&](ActorCriticPolicy& policy) {
                            return std::make_unique<ImpalaUpdate>(policy, config);
                          }) {}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const ImpalaConfig& config,
                                      std::uint64_t seed) {
  return std::make_unique<Impala>(observation, action, num_envs, config, seed);
}

}  // namespace shoal::learn
