#include "shoal/learn/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "shoal/learn/optimizer/adam.h"
#include "shoal/learn/optimizer/rmsprop.h"

namespace shoal::learn {
namespace {

constexpr std::size_t kPart = 1 << 16;  // floats: they take longer than a team's begin and end

std::size_t parts(std::size_t size) { return (size + kPart - 1) / kPart; }

/// part(k, first, floats) for each part of `size` floats.
template <class Part>
void for_each_part(std::size_t size, ThreadTeam* team, const Part& part) {
  const auto task = [&](int k, int) {
    const std::size_t first = static_cast<std::size_t>(k) * kPart;
    part(static_cast<std::size_t>(k), first, std::min(kPart, size - first));
  };
  const auto tasks = static_cast<int>(parts(size));
  if (team != nullptr && tasks > 1 && tasks <= ThreadTeam::kMaxTasks) {
    team->run(tasks, task);
  } else {
    for (int k = 0; k < tasks; ++k) task(k, 0);
  }
}

double sum_of_squares(std::span<const float> values) noexcept {
  // Sixteen sums side by side, so that the compiler may vectorise in a fixed order.
  constexpr std::size_t kLanes = 16;
  double sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      const double v = values[i + k];
      sums[k] += v * v;
    }
  }
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]) * values[i];
  return std::accumulate(sums, sums + kLanes, 0.0);
}

}  // namespace

void Optimizer::step(std::span<float> parameters, std::span<const float> gradient,
                     double gradient_scale, double learning_rate, ThreadTeam* team) {
  std::array<float*, kMostAverages> places{};
  std::size_t count = 0;
  for (const Average& average : averages()) places[count++] = average.values.data();
  prepare(++steps_, gradient_scale, learning_rate);
  for_each_part(parameters.size(), team, [&](std::size_t, std::size_t first, std::size_t floats) {
    std::array<float*, kMostAverages> own{};
    for (std::size_t k = 0; k < count; ++k) own[k] = places[k] + first;
    apply(parameters.data() + first, gradient.data() + first, std::span(own).first(count), floats);
  });
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

double norm(std::span<const float> gradient, ThreadTeam* team) {
  if (gradient.size() <= kPart) return std::sqrt(sum_of_squares(gradient));
  std::vector<double> sums(parts(gradient.size()));
  for_each_part(gradient.size(), team, [&](std::size_t k, std::size_t first, std::size_t floats) {
    sums[k] = sum_of_squares(gradient.subspan(first, floats));
  });
  return std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
}

double clip_factor(double norm, double max_norm) noexcept {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace shoal::learn
