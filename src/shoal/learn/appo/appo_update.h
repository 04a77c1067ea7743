// APPO's update: PPO's, with V-trace's advantages and targets.
//
// Threads: one at a time. Bits depend on the rollout, the parameters, the seed and the iteration
// alone.
#pragma once

#include "shoal/learn/appo/appo_config.h"
#include "shoal/learn/asynchronous/asynchronous_options.h"
#include "shoal/learn/ppo/ppo_update.h"

namespace shoal::learn {

class AppoUpdate final : public PpoUpdate {
 public:
  /// Borrows the policy.
  AppoUpdate(ActorCriticPolicy& policy, const AppoConfig& config)
      : PpoUpdate(policy, config), options_(config) {}

 private:
  void estimate(collect::Rollout& rollout) override;

  const AsynchronousOptions options_;
};

}  // namespace shoal::learn
