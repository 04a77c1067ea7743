#include "shoal/learn/sac/sac.h"

#include "shoal/learn/off_policy/off_policy_learner.h"
#include "shoal/learn/sac/sac_update.h"

namespace shoal::learn {

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const SacConfig& config, std::uint64_t seed) {
  validate(config);
  return std::make_unique<OffPolicyLearner>(
      observation, action, num_envs, config,
      std::make_unique<SacUpdate>(observation, action, config, seed));
}

}  // namespace shoal::learn
