#include "shoal/learn/dqn/dqn.h"

#include "shoal/learn/dqn/dqn_update.h"
#include "shoal/learn/off_policy/off_policy_learner.h"

namespace shoal::learn {

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const DqnConfig& config, std::uint64_t seed) {
  validate(config);
  return std::make_unique<OffPolicyLearner>(
      observation, action, num_envs, config,
      std::make_unique<DqnUpdate>(observation, action, config, seed));
}

}  // namespace shoal::learn
