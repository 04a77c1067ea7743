#include "shoal/learn/a2c/a2c.h"

#include <utility>

#include "shoal/learn/a2c/a2c_update.h"
#include "shoal/learn/config/option.h"

namespace shoal::learn {

void validate(const A2cConfig& config) {
  validate(static_cast<const LearnerConfig&>(config));
  check_option(config.shards >= 0, "shards", config.shards, "0 (one for each rank) or more");
}

A2c::A2c(const env::Space& observation, const env::Space& action, int num_envs,
         const A2cConfig& config, std::uint64_t seed, std::shared_ptr<group::Group> group)
    : A2c(observation, action, Shards(std::move(group), validated(config).shards, num_envs), config,
          seed) {}

A2c::A2c(const env::Space& observation, const env::Space& action, const Shards& shards,
         const A2cConfig& config, std::uint64_t seed)
    : RolloutLearner(observation, action, shards, config, seed, [&](ActorCriticPolicy& policy) {
        return std::make_unique<A2cUpdate>(policy, config, nullptr, shards);
      }) {}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const A2cConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group) {
  return std::make_unique<A2c>(observation, action, num_envs, config, seed, std::move(group));
}

}  // namespace shoal::learn
