#include "shoal/learn/a2c/a2c_update.h"

#include <utility>

namespace shoal::learn {

A2cUpdate::A2cUpdate(ActorCriticPolicy& policy, const LearnerConfig& config,
                     std::unique_ptr<Optimizer> optimizer, Shards shards)
    : RolloutUpdate(policy, config, std::move(optimizer), std::move(shards)),
      loss_(policy.distribution()) {}

void A2cUpdate::learn(collect::Rollout& rollout, const UpdateTime&, UpdateStats& stats) {
  if (total_rows_ == 0) return;  // all were resets: there is nothing to learn from
  Parts all;
  for (const auto& rows : rows_of_shards_) all.emplace_back(rows);
  std::vector<WholeBatch> whole(1);
  if (!shards_.whole()) whole = wholes(1, [&](std::size_t) { return all; });
  const auto [losses, length] =
      differentiate(rollout, all, whole[0], [&](const LossRows& rows, const LossDerivatives& by) {
        return loss_(rows, coefficients_, by);
      });
  batch_.step(*optimizer_, length, stats.learning_rate);
  stats.add(losses, length);
  stats.epochs = 1;
}

}  // namespace shoal::learn
