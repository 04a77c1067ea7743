#include "shoal/learn/ppo/ppo.h"

#include "shoal/learn/ppo/ppo_update.h"

namespace shoal::learn {

Ppo::Ppo(const env::Space& observation, const env::Space& action, int num_envs,
         const PpoConfig& config, std::uint64_t seed)
    : RolloutLearner(
          observation, action, num_envs, validated(config), seed,
          [&](ActorCriticPolicy& policy) { return std::make_unique<PpoUpdate>(policy, config); }) {}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const PpoConfig& config, std::uint64_t seed) {
  return std::make_unique<Ppo>(observation, action, num_envs, config, seed);
}

}  // namespace shoal::learn
