#include "shoal/learn/appo/appo.h"

#include <utility>

#include "shoal/learn/asynchronous/asynchronous_learner.h"
#include "shoal/learn/asynchronous/corrected_update.h"
#include "shoal/learn/ppo/ppo_update.h"
#include "shoal/os/error.h"

namespace shoal::learn {

void validate(const AppoConfig& config) {
  validate(static_cast<const PpoConfig&>(config));
  validate(static_cast<const AsynchronousOptions&>(config));
  if (config.recompute_advantages || config.normalize_returns)
    throw InvalidArgument(
        "configure training: recompute_advantages and normalize_returns are ppo's; appo corrects "
        "its "
        "advantages and targets by V-trace");
}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const AppoConfig& config, std::uint64_t seed,
                                      std::shared_ptr<RolloutSupply> supply) {
  validate(config);
  return std::make_unique<AsynchronousLearner>(
      observation, action, num_envs, config, config, seed,
      [&](ActorCriticPolicy& policy) {
        return std::make_unique<CorrectedUpdate<PpoUpdate>>(policy, config);
      },
      std::move(supply));
}

}  // namespace shoal::learn
