#include "shoal/learn/impala/impala.h"

#include <utility>

#include "shoal/learn/a2c/a2c_update.h"
#include "shoal/learn/asynchronous/asynchronous_learner.h"
#include "shoal/learn/asynchronous/corrected_update.h"

namespace shoal::learn {

void validate(const ImpalaConfig& config) {
  validate(static_cast<const LearnerConfig&>(config));
  validate(static_cast<const AsynchronousOptions&>(config));
}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const ImpalaConfig& config, std::uint64_t seed,
                                      std::shared_ptr<RolloutSupply> supply) {
  validate(config);
  return std::make_unique<AsynchronousLearner>(
      observation, action, num_envs, config, config, seed,
      [&](ActorCriticPolicy& policy) {
        return std::make_unique<CorrectedUpdate<A2cUpdate>>(policy, config);
      },
      std::move(supply));
}

}  // namespace shoal::learn
