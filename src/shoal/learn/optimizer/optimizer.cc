#include "shoal/learn/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "shoal/learn/optimizer/adam.h"
#include "shoal/learn/optimizer/rmsprop.h"

namespace shoal::learn {

void Optimizer::step(std::span<float> parameters, std::span<const float> gradient,
                     double gradient_scale, double learning_rate) {
  std::array<float*, kMostAverages> places{};
  std::size_t count = 0;
  for (const Average& average : averages()) places[count++] = average.values.data();
  prepare(++steps_, gradient_scale, learning_rate);
  apply(parameters.data(), gradient.data(), std::span(places).first(count), parameters.size());
}

std::unique_ptr<Optimizer> make_optimizer(const LearnerConfig& config, std::size_t size) {
  if (config.optimizer == OptimizerKind::kAdam) {
    return std::make_unique<Adam>(
        size, AdamOptions{config.adam_beta1, config.adam_beta2, config.adam_eps});
  }
  return std::make_unique<RmsProp>(
      size, RmsPropOptions{.alpha = config.rmsprop_alpha,
                           .eps = config.rmsprop_eps,
                           .tensorflow = config.optimizer == OptimizerKind::kRmsPropTf});
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
