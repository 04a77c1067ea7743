#include "shoal/learn/ppo/ppo.h"

#include <utility>

#include "shoal/learn/ppo/ppo_update.h"

namespace shoal::learn {

Ppo::Ppo(const env::Space& observation, const env::Space& action, int num_envs,
         const PpoConfig& config, std::uint64_t seed, std::shared_ptr<group::Group> group)
    : Ppo(observation, action, Shards(std::move(group), validated(config).shards, num_envs), config,
          seed) {}

Ppo::Ppo(const env::Space& observation, const env::Space& action, const Shards& shards,
         const PpoConfig& config, std::uint64_t seed)
    : RolloutLearner(observation, action, shards, config, seed, [&](ActorCriticPolicy& policy) {
        return std::make_unique<PpoUpdate>(policy, config, shards);
      }) {}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const PpoConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group) {
  return std::make_unique<Ppo>(observation, action, num_envs, config, seed, std::move(group));
}

}  // namespace shoal::learn
