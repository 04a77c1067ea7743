#include "shoal/learn/sac/sac.h"

#include "shoal/learn/sac/sac_update.h"

namespace shoal::learn {

Sac::Sac(const env::Space& observation, const env::Space& action, int num_envs,
         const SacConfig& config, std::uint64_t seed)
    : OffPolicyLearner(observation, action, num_envs, validated(config),
                       std::make_unique<SacUpdate>(observation, action, validated(config), seed)) {}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const SacConfig& config, std::uint64_t seed) {
  return std::make_unique<Sac>(observation, action, num_envs, config, seed);
}

}  // namespace shoal::learn
