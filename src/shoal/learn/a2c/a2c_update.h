// A2C's update: one step along the gradient of a whole rollout.
//
// Threads: one at a time. Bits depend on the rollout and the parameters alone.
#pragma once

#include <memory>

#include "shoal/learn/a2c/a2c_loss.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/rollout_update.h"
#include "shoal/learn/optimizer/optimizer.h"

namespace shoal::learn {

class A2cUpdate : public RolloutUpdate {
 public:
  /// As RolloutUpdate.
  A2cUpdate(ActorCriticPolicy& policy, const LearnerConfig& config,
            std::unique_ptr<Optimizer> optimizer = nullptr, Shards shards = Shards());

 private:
  void learn(collect::Rollout& rollout, const UpdateTime& time, UpdateStats& stats) override;

  A2cLoss loss_;
};

}  // namespace shoal::learn
