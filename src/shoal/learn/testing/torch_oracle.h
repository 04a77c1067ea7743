// For tests: the same mathematics written once more with LibTorch, which differentiates by itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/ppo/ppo_loss.h"

namespace shoal::learn {

struct LossByTorch {
  PpoLosses losses;
  std::vector<float> logp;
  std::vector<float> entropy;
  std::vector<float> d_head;
  std::vector<float> d_value;
  std::vector<float> d_log_std;
};

/// PPO's loss in double precision and its derivatives by autograd. `categories` is empty for a
/// Gaussian.
LossByTorch loss_by_torch(const PpoMinibatch& batch, const std::vector<std::int64_t>& categories,
                          const PpoCoefficients& coefficients);

/// One step of torch's own fused Adam; step counts from 1.
void adam_by_torch(std::span<float> parameters, std::span<float> gradient, std::span<float> exp_avg,
                   std::span<float> exp_avg_sq, std::int64_t step, double learning_rate,
                   double beta1, double beta2, double eps);

/// torch's normalisation of advantages: (a - a.mean()) / (a.std() + 1e-8).
std::vector<float> normalized_by_torch(std::span<const float> advantage);

/// The factor of torch.nn.utils.clip_grad_norm_.
double clip_factor_by_torch(std::span<const float> gradient, double max_norm);

}  // namespace shoal::learn
