#include "shoal/learn/a2c/a2c_update.h"

#include <utility>

namespace shoal::learn {

A2cUpdate::A2cUpdate(ActorCriticPolicy& policy, const LearnerConfig& config,
                     std::unique_ptr<Optimizer> optimizer)
    : RolloutUpdate(policy, config, std::move(optimizer)), loss_(policy.distribution()) {}

void A2cUpdate::learn(collect::Rollout& rollout, const UpdateTime&, UpdateStats& stats) {
  if (advantages_.rows.empty()) return;  // all were resets: there is nothing to learn from
  batch_.take(rollout, advantages_, Sequences(advantages_.rows));
  const Losses losses = loss_(batch_.rows(), coefficients_, batch_.derivatives());
  const double length = batch_.differentiate();
  batch_.step(*optimizer_, length, stats.learning_rate);
  stats.add(losses, length);
  stats.epochs = 1;
}

}  // namespace shoal::learn
