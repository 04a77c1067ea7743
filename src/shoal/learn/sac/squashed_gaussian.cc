#include "shoal/learn/sac/squashed_gaussian.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shoal::learn {
namespace {

const float kHalfLogTwoPi = static_cast<float>(0.5 * std::log(2.0 * std::numbers::pi));

float held(float log_std) noexcept { return std::clamp(log_std, kLeastLogStd, kMostLogStd); }

}  // namespace

double squash_correction(double x) noexcept {
  const double z = -2.0 * x;
  const double softplus = std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
  return 2.0 * (std::numbers::ln2 - x - softplus);
}

float squash(std::span<const float> head, std::span<const float> noise,
             std::span<float> action) noexcept {
  const std::size_t n = noise.size();
  double logp = 0;
  for (std::size_t k = 0; k < n; ++k) {
    const float log_std = held(head[n + k]);
    const float x = head[k] + noise[k] * std::exp(log_std);
    action[k] = std::tanh(x);
    logp += static_cast<double>(-0.5F * noise[k] * noise[k] - log_std - kHalfLogTwoPi);
    logp -= squash_correction(static_cast<double>(x));
  }
  return static_cast<float>(logp);
}

void squash_backward(std::span<const float> head, std::span<const float> noise,
                     std::span<const float> action, float by_logp, std::span<const float> by_action,
                     std::span<float> d_head) noexcept {
  const std::size_t n = noise.size();
  for (std::size_t k = 0; k < n; ++k) {
    const float raw = head[n + k];
    const float spread = noise[k] * std::exp(held(raw));
    // By x: of the correction 2 tanh(x), of the action its slope.
    const float by_x = by_logp * 2.0F * action[k] + by_action[k] * (1.0F - action[k] * action[k]);
    d_head[k] = by_x;
    const bool moves = raw >= kLeastLogStd && raw <= kMostLogStd;
    d_head[n + k] = moves ? by_x * spread - by_logp : 0.0F;
  }
}

}  // namespace shoal::learn
