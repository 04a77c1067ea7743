#include "shoal/learn/appo/appo.h"

#include "shoal/learn/appo/appo_update.h"
#include "shoal/learn/asynchronous/off_policy_advantages.h"

namespace shoal::learn {

void validate(const AppoConfig& config) {
  validate(static_cast<const PpoConfig&>(config));
  validate(static_cast<const AsynchronousOptions&>(config));
}

void AppoUpdate::estimate(collect::Rollout& rollout) {
  estimate_off_policy(rollout, policy_, config_, options_, advantages_);
}

Appo::Appo(const env::Space& observation, const env::Space& action, int num_envs,
           const AppoConfig& config, std::uint64_t seed)
    : AsynchronousLearner(
          observation, action, num_envs, validated(config), config, seed,
          [&](ActorCriticPolicy& policy) { return std::make_unique<AppoUpdate>(policy, config); }) {
}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const AppoConfig& config, std::uint64_t seed) {
  return std::make_unique<Appo>(observation, action, num_envs, config, seed);
}

}  // namespace shoal::learn
