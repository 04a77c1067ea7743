#include "shoal/learn/a2c/a2c.h"

#include <utility>

#include "shoal/learn/a2c/a2c_update.h"
#include "shoal/learn/asynchronous/asynchronous_learner.h"
#include "shoal/learn/config/option.h"

namespace shoal::learn {
namespace {

MakeUpdate makes_a2c_update(const A2cConfig& config, const Shards& shards) {
  return [&](ActorCriticPolicy& policy) {
    return std::make_unique<A2cUpdate>(policy, config, nullptr, shards);
  };
}

}  // namespace

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
    : RolloutLearner(observation, action, shards, config, seed, makes_a2c_update(config, shards)) {}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const A2cConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group) {
  if (!config.overlap)
    return std::make_unique<A2c>(observation, action, num_envs, config, seed, std::move(group));
  const Shards shards(std::move(group), validated(config).shards, num_envs);
  return make_overlapping_learner(observation, action, shards, config, seed,
                                  makes_a2c_update(config, shards));
}

}  // namespace shoal::learn
