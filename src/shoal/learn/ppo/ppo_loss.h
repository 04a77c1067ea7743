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
#include <span>
#include <vector>

#include "shoal/learn/network/distribution.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

/// A minibatch's rows. Spans have one element a row, `head` head_size() of them.
struct PpoMinibatch {
  std::span<const float> head;
  std::span<const float> value;
  std::span<const float> log_std;  // empty unless Gaussian
  shm::TensorView actions;
  std::span<const float> old_logp;
  std::span<const float> old_value;
  std::span<const float> advantage;  // normalised already, if at all
  std::span<const float> returns;
};

struct PpoCoefficients {
  float clip_range = 0.2F;
  std::optional<float> clip_range_value = {};
  bool pessimistic_value_clip =
      true;  // max of the clipped and the unclipped error (the original); false: the clipped (SB3)
  float value_coef = 0.5F;
  float entropy_coef = 0.0F;
};

struct PpoLosses {
  double policy = 0;
  double value = 0;
  double entropy = 0;
  double total = 0;
  double approx_kl = 0;  // mean of (r - 1) - log r (Schulman's third estimator)
  double clip_fraction = 0;
};

class PpoLoss {
 public:
  explicit PpoLoss(ActionDistribution distribution) : distribution_(std::move(distribution)) {}

  const ActionDistribution& distribution() const noexcept { return distribution_; }

  /// Returns the losses, and writes the derivatives of the total by head, value and log_std.
  PpoLosses operator()(const PpoMinibatch& batch, const PpoCoefficients& coefficients,
                       std::span<float> d_head, std::span<float> d_value,
                       std::span<float> d_log_std);

 private:
  ActionDistribution distribution_;
  std::vector<float> logp_, entropy_, log_probs_, d_logp_;
};

/// In place: mean 0, standard deviation 1 (unbiased, plus 1e-8). Fewer than two elements stay as
/// they are.
void normalize_advantages(std::span<float> advantage);

}  // namespace shoal::learn
