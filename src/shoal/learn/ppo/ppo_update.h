// PPO's update: some epochs over a rollout in shuffled minibatches.
//
// Threads: one at a time. Bits depend on the rollout, the parameters, the seed and the iteration
// alone.
#pragma once

#include <cstdint>

#include "shoal/learn/learner/rollout_update.h"
#include "shoal/learn/ppo/ppo_config.h"
#include "shoal/learn/ppo/ppo_loss.h"

namespace shoal::learn {

class PpoUpdate : public RolloutUpdate {
 public:
  /// Borrows the policy.
  PpoUpdate(ActorCriticPolicy& policy, const PpoConfig& config);

 private:
  void learn(collect::Rollout& rollout, const UpdateTime& time, UpdateStats& stats) override;
  void shuffle(std::int64_t iteration, int epoch);

  const PpoConfig ppo_;
  PpoLoss loss_;
};

}  // namespace shoal::learn
