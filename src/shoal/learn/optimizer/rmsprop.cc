#include "shoal/learn/optimizer/rmsprop.h"

#include <algorithm>
#include <cmath>

namespace shoal::learn {

RmsProp::RmsProp(std::size_t size, RmsPropOptions options) : options_(options), square_avg_(size) {
  if (options.tensorflow) std::ranges::fill(square_avg_.span(), 1.0F);
}

void RmsProp::prepare(std::int64_t, double gradient_scale, double learning_rate) noexcept {
  scale_ = static_cast<float>(gradient_scale);
  rate_ = static_cast<float>(learning_rate);
}

void RmsProp::apply(float* parameters, const float* gradient, std::span<float* const> averages,
                    std::size_t size) const noexcept {
  const float scale = scale_;
  const float rate = rate_;
  const auto alpha = static_cast<float>(options_.alpha);
  const auto rest = static_cast<float>(1.0 - options_.alpha);
  const auto eps = static_cast<float>(options_.eps);
  const float inside = options_.tensorflow ? eps : 0.0F;
  const float outside = options_.tensorflow ? 0.0F : eps;
  float* __restrict p = parameters;
  const float* __restrict g = gradient;
  float* __restrict s = averages[0];
  for (std::size_t i = 0; i < size; ++i) {
    const float gi = g[i] * scale;
    s[i] = faded_to_zero(alpha * s[i] + rest * gi * gi);
    p[i] -= rate * gi / (std::sqrt(s[i] + inside) + outside);
  }
}

}  // namespace shoal::learn
