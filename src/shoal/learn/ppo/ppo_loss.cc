#include "shoal/learn/ppo/ppo_loss.h"

#include <algorithm>
#include <cmath>

namespace shoal::learn {
namespace {

// Derivative of one row's policy loss by its log-probability, before the mean; adds to the sums.
float policy_row(float log_ratio, float advantage, float clip, PpoLosses& sums) {
  const float ratio = std::exp(log_ratio);
  const float clipped = std::clamp(ratio, 1.0F - clip, 1.0F + clip);
  const float plain_loss = -advantage * ratio;
  const float clipped_loss = -advantage * clipped;
  sums.policy += std::max(plain_loss, clipped_loss);
  sums.approx_kl += (ratio - 1.0F) - log_ratio;
  sums.clip_fraction += std::abs(ratio - 1.0F) > clip ? 1.0 : 0.0;
  return plain_loss >= clipped_loss ? plain_loss : 0.0F;
}

// Derivative of one row's value loss by its value, before the mean; adds to the sum.
float value_row(float value, float old_value, float returns, const PpoCoefficients& coefficients,
                PpoLosses& sums) {
  const float error = value - returns;
  if (!coefficients.clip_range_value) {
    sums.value += error * error;
    return 2.0F * error;
  }
  const float range = *coefficients.clip_range_value;
  const float moved = value - old_value;
  const float clipped_error = old_value + std::clamp(moved, -range, range) - returns;
  const bool within = std::abs(moved) <= range;
  if (coefficients.pessimistic_value_clip && error * error > clipped_error * clipped_error) {
    sums.value += error * error;
    return 2.0F * error;
  }
  sums.value += clipped_error * clipped_error;
  return within ? 2.0F * clipped_error : 0.0F;
}

}  // namespace

PpoLosses PpoLoss::operator()(const PpoMinibatch& batch, const PpoCoefficients& coefficients,
                              std::span<float> d_head, std::span<float> d_value,
                              std::span<float> d_log_std) {
  const std::size_t rows = batch.value.size();
  logp_.resize(rows);
  entropy_.resize(rows);
  d_logp_.resize(rows);
  log_probs_.resize(batch.head.size());
  distribution_.evaluate(batch.head, batch.log_std, batch.actions, logp_, entropy_, log_probs_);

  PpoLosses sums;
  const float each = 1.0F / static_cast<float>(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    d_logp_[r] = each * policy_row(logp_[r] - batch.old_logp[r], batch.advantage[r],
                                   coefficients.clip_range, sums);
    d_value[r] =
        each * coefficients.value_coef *
        value_row(batch.value[r], batch.old_value[r], batch.returns[r], coefficients, sums);
    sums.entropy += entropy_[r];
  }
  distribution_.backward(batch.head, batch.log_std, batch.actions, log_probs_, d_logp_,
                         -coefficients.entropy_coef * each, d_head, d_log_std);

  const auto n = static_cast<double>(rows);
  for (double* sum :
       {&sums.policy, &sums.value, &sums.entropy, &sums.approx_kl, &sums.clip_fraction})
    *sum /= n;
  sums.total =
      sums.policy + coefficients.value_coef * sums.value - coefficients.entropy_coef * sums.entropy;
  return sums;
}

void normalize_advantages(std::span<float> advantage) {
  if (advantage.size() < 2) return;
  const auto n = static_cast<double>(advantage.size());
  double mean = 0;
  for (const float a : advantage) mean += a;
  mean /= n;
  double squares = 0;
  for (const float a : advantage) squares += (a - mean) * (a - mean);
  const double scale = 1.0 / (std::sqrt(squares / (n - 1.0)) + 1e-8);
  for (float& a : advantage) a = static_cast<float>((a - mean) * scale);
}

}  // namespace shoal::learn
