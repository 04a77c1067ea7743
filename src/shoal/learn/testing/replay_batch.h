// For tests: a batch of random rows, as a learner from a replay hands it to an update.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "shoal/learn/off_policy/off_policy_update.h"

namespace shoal::learn {

struct RandomBatch {
  std::vector<float> obs, next_obs, floats, returns, discounts, weights;
  std::vector<std::int32_t> indices;
  std::vector<shm::TensorView> obs_views, next_views;
  shm::TensorView action;

  /// `actions` of a Discrete, or, where it is 0, `dimensions` within [-1, 1].
  RandomBatch(std::int64_t rows, std::int64_t dense, int actions, std::int64_t dimensions,
              unsigned seed) {
    std::mt19937 dice(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> unit(-1, 1);
    const auto fill = [&](std::vector<float>& out, std::int64_t n, auto&& draw) {
      for (std::int64_t i = 0; i < n; ++i) out.push_back(draw());
    };
    fill(obs, rows * dense, [&] { return normal(dice); });
    fill(next_obs, rows * dense, [&] { return normal(dice); });
    fill(returns, rows, [&] { return normal(dice); });
    fill(discounts, rows, [&] { return dice() % 4 == 0 ? 0.0F : 0.97F; });
    fill(weights, rows, [&] { return 0.25F + 0.5F * (unit(dice) + 1.0F); });
    const shm::TensorSpec spec{shm::DType::kF32, {dense}};
    obs_views = {{reinterpret_cast<std::byte*>(obs.data()), rows, spec}};
    next_views = {{reinterpret_cast<std::byte*>(next_obs.data()), rows, spec}};
    if (actions > 0) {
      for (std::int64_t r = 0; r < rows; ++r)
        indices.push_back(static_cast<std::int32_t>(dice() % static_cast<unsigned>(actions)));
      action = {reinterpret_cast<std::byte*>(indices.data()), rows, {shm::DType::kI32, {1}}};
    } else {
      fill(floats, rows * dimensions, [&] { return unit(dice); });
      action = {
          reinterpret_cast<std::byte*>(floats.data()), rows, {shm::DType::kF32, {dimensions}}};
    }
  }
  RandomBatch(const RandomBatch&) = delete;
  RandomBatch& operator=(const RandomBatch&) = delete;

  ReplayMinibatch view() const {
    return {.obs = obs_views,
            .next_obs = next_views,
            .action = action,
            .returns = returns,
            .discounts = discounts,
            .weights = weights};
  }
  static std::vector<double> row(const std::vector<float>& all, std::size_t r, std::size_t width) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(r * width);
    return {from, from + static_cast<std::ptrdiff_t>(width)};
  }
};

}  // namespace shoal::learn
