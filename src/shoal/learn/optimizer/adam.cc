#include "shoal/learn/optimizer/adam.h"

#include <cmath>

namespace shoal::learn {

void Adam::prepare(std::int64_t number, double gradient_scale, double learning_rate) noexcept {
  const auto t = static_cast<double>(number);
  const double correction1 = 1.0 - std::pow(options_.beta1, t);
  const double correction2 = 1.0 - std::pow(options_.beta2, t);
  scale_ = static_cast<float>(gradient_scale);
  step_size_ = static_cast<float>(learning_rate / correction1);
  inverse_root_ = static_cast<float>(1.0 / std::sqrt(correction2));
}

void Adam::apply(float* parameters, const float* gradient, std::span<float* const> averages,
                 std::size_t size) const noexcept {
  const float scale = scale_;
  const float step_size = step_size_;
  const float inverse_root = inverse_root_;
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto beta2 = static_cast<float>(options_.beta2);
  const auto rest1 = static_cast<float>(1.0 - options_.beta1);
  const auto rest2 = static_cast<float>(1.0 - options_.beta2);
  const auto eps = static_cast<float>(options_.eps);
  float* __restrict p = parameters;
  const float* __restrict g = gradient;
  float* __restrict m = averages[0];
  float* __restrict v = averages[1];
  for (std::size_t i = 0; i < size; ++i) {
    const float gi = g[i] * scale;
    m[i] = faded_to_zero(beta1 * m[i] + rest1 * gi);
    v[i] = faded_to_zero(beta2 * v[i] + rest2 * gi * gi);
    p[i] -= step_size * m[i] / (std::sqrt(v[i]) * inverse_root + eps);
  }
}

}  // namespace shoal::learn
