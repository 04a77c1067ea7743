#include "shoal/learn/network/adam.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shoal::learn {

void Adam::step(std::span<float> parameters, std::span<const float> gradient, double gradient_scale,
                double learning_rate) {
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const double correction1 = 1.0 - std::pow(options_.beta1, t);
  const double correction2 = 1.0 - std::pow(options_.beta2, t);
  const auto scale = static_cast<float>(gradient_scale);
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto beta2 = static_cast<float>(options_.beta2);
  const auto rest1 = static_cast<float>(1.0 - options_.beta1);
  const auto rest2 = static_cast<float>(1.0 - options_.beta2);
  const auto step_size = static_cast<float>(learning_rate / correction1);
  const auto inverse_root = static_cast<float>(1.0 / std::sqrt(correction2));
  const auto eps = static_cast<float>(options_.eps);
  float* __restrict p = parameters.data();
  const float* __restrict g = gradient.data();
  float* __restrict m = exp_avg_.data();
  float* __restrict v = exp_avg_sq_.data();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float gi = g[i] * scale;
    m[i] = beta1 * m[i] + rest1 * gi;
    v[i] = beta2 * v[i] + rest2 * gi * gi;
    p[i] -= step_size * m[i] / (std::sqrt(v[i]) * inverse_root + eps);
  }
}

double norm(std::span<const float> gradient) noexcept {
  // Sixteen sums side by side, so that the compiler may vectorise in a fixed order.
  constexpr std::size_t kLanes = 16;
  double sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= gradient.size(); i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      const double g = gradient[i + k];
      sums[k] += g * g;
    }
  }
  for (; i < gradient.size(); ++i) sums[0] += static_cast<double>(gradient[i]) * gradient[i];
  return std::sqrt(std::accumulate(sums, sums + kLanes, 0.0));
}

double clip_factor(double norm, double max_norm) noexcept {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace shoal::learn
