// Some rows of a rollout beside each other, what the network says of them, and the way from a
// loss's derivatives to a step of the parameters.
//
//   batch.take(rollout, advantages, rows);
//   // a loss reads batch.rows() and writes batch.derivatives()
//   const double length = batch.differentiate();
//   batch.step(optimizer, length, learning_rate);
//
// Of a minibatch that is in parts, take() and differentiate_part() are called for each part, and
// then add_parts().
//
// Threads: one at a time. Allocates when there are more rows than ever before; and the norm of a
// gradient of more than 65,536 floats takes some numbers.
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
#include "shoal/learn/learner/shards.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/optimizer/optimizer.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

/// All rows of a minibatch of which some are taken.
struct WholeBatch {
  double rows = 0;
  double mean = 0;   // what is subtracted from advantages,
  double scale = 1;  // and what they are multiplied with then
};

class Minibatch {
 public:
  /// Borrows both.
  Minibatch(ActorCriticPolicy& policy, const LearnerConfig& config);

  /// Copies the rows, normalises their advantages where that is done by minibatch, and runs the
  /// network over them. `whole`: they are a part of that.
  void take(collect::Rollout& rollout, const Advantages& advantages, const Sequences& sequences,
            const WholeBatch* whole = nullptr);

  /// What a loss reads of the rows, and where it writes; valid until the next take().
  LossRows rows() noexcept;
  LossDerivatives derivatives() noexcept { return {d_head_, d_value_, d_log_std_}; }

  /// From the derivatives to the gradient of the parameters. Returns its norm.
  double differentiate();

  /// The same for part `part`, counted from 0, whose gradient is kept until add_parts().
  void differentiate_part(std::size_t part);
  /// Of a part without rows: its gradient is 0.
  void leave_out_part(std::size_t part);
  /// From the parts to the gradient of the whole minibatch, on all ranks; what is in `numbers`, one
  /// part after the other, is added, too. Returns its norm.
  double add_parts(const Shards& shards, std::span<double> numbers);

  /// One step of the parameters along the gradient, clipped to the configuration's norm.
  void step(Optimizer& optimizer, double norm, double learning_rate);

  std::span<const float> gradient() const noexcept { return gradient_.span().first(size_); }

 private:
  std::span<float> part_of_gradient(std::size_t part);
  void write_gradient(std::span<float> gradient);

  ActorCriticPolicy& policy_;
  const LearnerConfig& config_;
  std::vector<float> head_, value_;
  std::vector<float> old_logp_, old_value_, advantage_, returns_;
  std::vector<float> d_head_, d_value_, d_log_std_;
  std::size_t size_;        // of the gradient
  AlignedFloats gradient_;  // of each part; then, in the first place, of all
  std::size_t total_ = 0;   // rows of the minibatch
  std::vector<std::byte> actions_;
  shm::TensorSpec action_;
};

}  // namespace shoal::learn
