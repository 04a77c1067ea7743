#include "shoal/learn/a2c/a2c.h"

#include <utility>

#include "shoal/learn/a2c/a2c_update.h"
#include "shoal/learn/asynchronous/asynchronous_learner.h"
#include "shoal/learn/config/option.h"

namespace shoal::learn {

void validate(const A2cConfig& config) {
  validate(static_cast<const LearnerConfig&>(config));
  validate(config.ranks);
  check_option(config.shards >= 0, "shards", config.shards, "0 (one for each rank) or more");
}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const A2cConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group) {
  validate(config);
  const Shards shards(std::move(group), config.shards, num_envs);
  return make_rollout_learner(observation, action, shards, config, seed, config.overlap,
                              config.ranks, [&](ActorCriticPolicy& policy) {
                                return std::make_unique<A2cUpdate>(policy, config, nullptr, shards);
                              });
}

}  // namespace shoal::learn
