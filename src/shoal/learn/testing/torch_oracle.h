// For tests: the same mathematics written once more with LibTorch, which differentiates by itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/learner/actor_critic_loss.h"
#include "shoal/learn/ppo/ppo_loss.h"

namespace shoal::learn {

struct LossByTorch {
  Losses losses;
  std::vector<float> d_head;
  std::vector<float> d_value;
  std::vector<float> d_log_std;
};

struct PpoLossByTorch : LossByTorch {
  double approx_kl;
  double clip_fraction;
};

/// A2C's loss in double precision and its derivatives by autograd. `categories` is empty for a
/// Gaussian.
LossByTorch a2c_loss_by_torch(const LossRows& rows, const std::vector<std::int64_t>& categories,
                              const LossCoefficients& coefficients);

/// PPO's, likewise.
PpoLossByTorch ppo_loss_by_torch(const LossRows& rows, const std::vector<std::int64_t>& categories,
                                 const PpoClipping& clipping, const LossCoefficients& coefficients);

/// One step of torch's own fused Adam; step counts from 1.
void adam_by_torch(std::span<float> parameters, std::span<float> gradient, std::span<float> exp_avg,
                   std::span<float> exp_avg_sq, std::int64_t step, double learning_rate,
                   double beta1, double beta2, double eps);

/// torch's normalisation of advantages: (a - a.mean()) / (a.std() + 1e-8).
std::vector<float> normalized_by_torch(std::span<const float> advantage);

/// The factor of torch.nn.utils.clip_grad_norm_.
double clip_factor_by_torch(std::span<const float> gradient, double max_norm);

}  // namespace shoal::learn
