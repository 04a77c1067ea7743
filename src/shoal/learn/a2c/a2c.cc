#include "shoal/learn/a2c/a2c.h"

#include "shoal/learn/a2c/a2c_update.h"

namespace shoal::learn {

A2c::A2c(const env::Space& observation, const env::Space& action, int num_envs,
         const A2cConfig& config, std::uint64_t seed)
    : RolloutLearner(
          observation, action, num_envs, validated(config), seed,
          [&](ActorCriticPolicy& policy) { return std::make_unique<A2cUpdate>(policy, config); }) {}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const A2cConfig& config, std::uint64_t seed) {
  return std::make_unique<A2c>(observation, action, num_envs, config, seed);
}

}  // namespace shoal::learn
