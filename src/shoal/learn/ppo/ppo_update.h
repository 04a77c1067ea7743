// PPO's update: some epochs over a rollout in shuffled minibatches.
//
// Threads: one at a time. Bits depend on the rollout, the parameters, the seed and the iteration
// alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/collect/rollout.h"
#include "shoal/learn/config/ppo_config.h"
#include "shoal/learn/network/adam.h"
#include "shoal/learn/ppo/ppo_loss.h"
#include "shoal/learn/ppo/ppo_policy.h"

namespace shoal::learn {

/// Means over the minibatches of one update.
struct UpdateStats {
  PpoLosses losses;  // approx_kl: of the last epoch
  double grad_norm = 0;
  double explained_variance = 0;
  int epochs = 0;
};

class PpoUpdate {
 public:
  PpoUpdate(PpoPolicy& policy, const PpoConfig& config);

  /// Changes the policy's parameters. `iteration` names the shuffles.
  UpdateStats run(collect::Rollout& rollout, std::int64_t iteration, double learning_rate,
                  double clip_range);

  Adam& adam() noexcept { return adam_; }
  const Adam& adam() const noexcept { return adam_; }

 private:
  void estimate_advantages(collect::Rollout& rollout);
  void shuffle(std::int64_t iteration, int epoch);
  PpoMinibatch gather(collect::Rollout& rollout, std::span<const std::int32_t> rows);
  /// One minibatch's gradient; fills head, value and the gradient.
  PpoLosses differentiate(collect::Rollout& rollout, std::span<const std::int32_t> rows,
                          const PpoCoefficients& coefficients);
  PpoCoefficients coefficients(double clip_range) const;

  PpoPolicy& policy_;
  const PpoConfig& config_;
  PpoLoss loss_;
  Adam adam_;
  AlignedFloats gradient_;
  std::vector<std::int32_t> rows_;
  std::vector<float> advantage_, returns_;
  // One minibatch.
  std::vector<float> head_, value_, d_head_, d_value_, d_log_std_;
  std::vector<float> old_logp_, old_value_, batch_advantage_, batch_returns_;
  std::vector<std::byte> actions_;
};

}  // namespace shoal::learn
