#include "shoal/learn/ppo/ppo.h"

#include <utility>

#include "shoal/learn/asynchronous/asynchronous_learner.h"
#include "shoal/learn/ppo/ppo_update.h"

namespace shoal::learn {

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const PpoConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group) {
  validate(config);
  const Shards shards(std::move(group), config.shards, num_envs);
  return make_rollout_learner(observation, action, shards, config, seed, config.overlap,
                              config.ranks, [&](ActorCriticPolicy& policy) {
                                return std::make_unique<PpoUpdate>(policy, config, shards);
                              });
}

}  // namespace shoal::learn
