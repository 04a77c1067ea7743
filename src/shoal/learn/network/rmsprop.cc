#include "shoal/learn/network/rmsprop.h"

#include <algorithm>
#include <cmath>

namespace shoal::learn {

RmsProp::RmsProp(std::size_t size, RmsPropOptions options) : options_(options), square_avg_(size) {
  if (options.tensorflow) std::ranges::fill(square_avg_.span(), 1.0F);
}

void RmsProp::step(std::span<float> parameters, std::span<const float> gradient,
                   double gradient_scale, double learning_rate) {
  ++steps_;
  const auto scale = static_cast<float>(gradient_scale);
  const auto alpha = static_cast<float>(options_.alpha);
  const auto rest = static_cast<float>(1.0 - options_.alpha);
  const auto rate = static_cast<float>(learning_rate);
  const auto eps = static_cast<float>(options_.eps);
  const float inside = options_.tensorflow ? eps : 0.0F;
  const float outside = options_.tensorflow ? 0.0F : eps;
  float* __restrict p = parameters.data();
  const float* __restrict g = gradient.data();
  float* __restrict s = square_avg_.data();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float gi = g[i] * scale;
    s[i] = alpha * s[i] + rest * gi * gi;
    p[i] -= rate * gi / (std::sqrt(s[i] + inside) + outside);
  }
}

}  // namespace shoal::learn
