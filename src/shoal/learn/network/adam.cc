#include "shoal/learn/network/adam.h"

#include <cmath>

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

}  // namespace shoal::learn
