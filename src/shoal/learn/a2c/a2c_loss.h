// A2C's loss of a rollout's rows and its derivatives by the network's outputs.
//
//   loss = -mean(A log p(a)) + value_coef * mean((V - returns)^2) - entropy_coef * mean(entropy)
//
// (Mnih et al., 2016, with the value's error in full, as Stable-Baselines3 has it.)
//
// Threads: one at a time. Allocates only when there are more rows than ever before.
#pragma once

#include <utility>

#include "shoal/learn/learner/actor_critic_loss.h"
#include "shoal/learn/network/distribution.h"

namespace shoal::learn {

class A2cLoss {
 public:
  explicit A2cLoss(ActionDistribution distribution) : loss_(std::move(distribution)) {}

  /// Returns the losses, and writes the derivatives of the total. Of `rows` it does not read
  /// old_logp and old_value.
  Losses operator()(const LossRows& rows, const LossCoefficients& coefficients,
                    const LossDerivatives& by);

 private:
  ActorCriticLoss loss_;
};

}  // namespace shoal::learn
