#include "shoal/learn/ppo/ppo.h"

#include <utility>

#include "shoal/learn/asynchronous/asynchronous_learner.h"
#include "shoal/learn/ppo/ppo_update.h"

namespace shoal::learn {
namespace {

MakeUpdate makes_ppo_update(const PpoConfig& config, const Shards& shards) {
  return [&](ActorCriticPolicy& policy) {
    return std::make_unique<PpoUpdate>(policy, config, shards);
  };
}

}  // namespace

Ppo::Ppo(const env::Space& observation, const env::Space& action, int num_envs,
         const PpoConfig& config, std::uint64_t seed, std::shared_ptr<group::Group> group)
    : Ppo(observation, action, Shards(std::move(group), validated(config).shards, num_envs), config,
          seed) {}

Ppo::Ppo(const env::Space& observation, const env::Space& action, const Shards& shards,
         const PpoConfig& config, std::uint64_t seed)
    : RolloutLearner(observation, action, shards, config, seed, makes_ppo_update(config, shards)) {}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const PpoConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group) {
  if (!config.overlap)
    return std::make_unique<Ppo>(observation, action, num_envs, config, seed, std::move(group));
  const Shards shards(std::move(group), validated(config).shards, num_envs);
  return make_overlapping_learner(observation, action, shards, config, seed,
                                  makes_ppo_update(config, shards));
}

}  // namespace shoal::learn
