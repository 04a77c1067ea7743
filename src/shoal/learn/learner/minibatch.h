// Some rows of a rollout beside each other, what the network says of them, and the way from a loss's
// derivatives to a step of the parameters.
//
//   batch.take(rollout, advantages, rows);
//   // a loss reads batch.rows() and writes batch.derivatives()
//   const double length = batch.differentiate();
//   batch.step(optimizer, length, learning_rate);
//
// Threads: one at a time. Allocates only when there are more rows than ever before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/collect/rollout.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/actor_critic_loss.h"
#include "shoal/learn/learner/actor_critic_policy.h"
#include "shoal/learn/learner/advantages.h"
#include "shoal/learn/network/optimizer.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class Minibatch {
 public:
  /// Borrows both.
  Minibatch(ActorCriticPolicy& policy, const LearnerConfig& config);

  /// Copies the rows, normalises their advantages where that is done by minibatch, and runs the
  /// network over them.
  void take(collect::Rollout& rollout, const Advantages& advantages, const Sequences& sequences);

  /// What a loss reads of the rows, and where it writes; valid until the next take().
  LossRows rows() noexcept;
  LossDerivatives derivatives() noexcept { return {d_head_, d_value_, d_log_std_}; }

  /// From the derivatives to the gradient of the parameters. Returns its norm.
  double differentiate();

  /// One step of the parameters along the gradient, clipped to the configuration's norm.
  void step(Optimizer& optimizer, double norm, double learning_rate);

  std::span<const float> gradient() const noexcept { return gradient_.span(); }

 private:
  ActorCriticPolicy& policy_;
  const LearnerConfig& config_;
  std::vector<float> head_, value_;
  std::vector<float> old_logp_, old_value_, advantage_, returns_;
  std::vector<float> d_head_, d_value_, d_log_std_;
  AlignedFloats gradient_;
  std::vector<std::byte> actions_;
  shm::TensorSpec action_;
};

}  // namespace shoal::learn
