#include "shoal/learn/appo/appo.h"

#include "shoal/learn/appo/appo_update.h"
#include "shoal/learn/asynchronous/off_policy_advantages.h"
#include "shoal/os/error.h"

namespace shoal::learn {

void validate(const AppoConfig& config) {
  validate(static_cast<const PpoConfig&>(config));
  validate(static_cast<const AsynchronousOptions&>(config));
  if (config.recompute_advantages || config.normalize_returns)
    throw InvalidArgument(
        "configure training: recompute_advantages and normalize_returns are ppo's; appo corrects "
        "its "
        "advantages and targets by V-trace");
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
