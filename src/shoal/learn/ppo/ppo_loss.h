// PPO's loss of one minibatch and its derivatives by the network's outputs.
//
//   loss = mean(max(-A r, -A clip(r, 1 - c, 1 + c)))
//          + value_coef * value_loss - entropy_coef * mean(entropy)
//   r = exp(logp - old_logp)
//   value_loss = mean((V - returns)^2), or its clipped form
//
// Threads: one at a time. Allocates only when a minibatch is larger than all before.
#pragma once

#include <optional>
#include <utility>

#include "shoal/learn/learner/actor_critic_loss.h"
#include "shoal/learn/network/distribution.h"
#include "shoal/learn/ppo/ppo_config.h"

namespace shoal::learn {

struct PpoClipping {
  float clip_range = 0.2F;
  std::optional<float> clip_range_value = {};
  bool pessimistic_value_clip =
      true;  // max of the clipped and the unclipped error (the original); false: the clipped (SB3)
};

/// The configuration's, with the clip range that its schedule is at.
PpoClipping clipping_of(const PpoConfig& config, double clip_range);

struct PpoLosses : Losses {
  double approx_kl = 0;  // mean of (r - 1) - log r (Schulman's third estimator)
  double clip_fraction = 0;
};

class PpoLoss {
 public:
  explicit PpoLoss(ActionDistribution distribution) : loss_(std::move(distribution)) {}

  /// Returns the losses, and writes the derivatives of the total.
  PpoLosses operator()(const LossRows& rows, const PpoClipping& clipping,
                       const LossCoefficients& coefficients, const LossDerivatives& by);

 private:
  ActorCriticLoss loss_;
};

}  // namespace shoal::learn
