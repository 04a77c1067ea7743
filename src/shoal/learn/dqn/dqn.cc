#include "shoal/learn/dqn/dqn.h"

#include "shoal/learn/dqn/dqn_update.h"

namespace shoal::learn {

Dqn::Dqn(const env::Space& observation, const env::Space& action, int num_envs,
         const DqnConfig& config, std::uint64_t seed)
    : OffPolicyLearner(observation, action, num_envs, validated(config),
                       std::make_unique<DqnUpdate>(observation, action, validated(config), seed)) {}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const DqnConfig& config, std::uint64_t seed) {
  return std::make_unique<Dqn>(observation, action, num_envs, config, seed);
}

}  // namespace shoal::learn
