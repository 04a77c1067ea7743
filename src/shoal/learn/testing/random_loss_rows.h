// For tests: rows for a loss, and its derivatives beside those of the oracle.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/learn/learner/actor_critic_loss.h"
#include "shoal/learn/testing/loss_oracle.h"
#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {

/// A distribution of actions: of these categories, or of a Box of so many dimensions.
struct LossCase {
  const char* name;
  std::vector<std::int64_t> categories;
  std::int64_t dimensions = 0;
};

inline const LossCase kLossCases[] = {
    {"Categorical", {5}}, {"TwoChoices", {2}},     {"MultiCategorical", {3, 2, 4}},
    {"Gaussian", {}, 3},  {"OneDimension", {}, 1},
};

inline env::Space action_space(const LossCase& c) {
  if (c.categories.empty()) return env::Box{{shm::DType::kF32, {c.dimensions}}, {-1}, {1}};
  if (c.categories.size() == 1) return env::Discrete{.n = c.categories[0]};
  return env::MultiDiscrete{
      .nvec = c.categories, .start = {}, .shape = {static_cast<std::int64_t>(c.categories.size())}};
}

/// Random rows, some of them far from the old policy so that every branch of a loss is taken.
struct RandomLossRows {
  RandomLossRows(const LossCase& c, std::size_t count, unsigned seed)
      : categories(c.categories), distribution(collect::ActionDecoder(action_space(c))) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    auto fill = [&](std::vector<float>& v, std::size_t n, float scale) {
      v.resize(n);
      for (auto& x : v) x = scale * normal(random);
    };
    const std::size_t width = distribution.head_size();
    fill(head, count * width, 2);
    if (categories.empty()) fill(log_std, width, 0.5F);
    fill(value, count, 1);
    fill(old_value, count, 1);
    fill(advantage, count, 1);
    fill(returns, count, 1);
    const std::size_t components = distribution.action_size();
    bytes.resize(count * components * 4);
    actions = {bytes.data(),
               static_cast<std::int64_t>(count),
               {categories.empty() ? shm::DType::kF32 : shm::DType::kI32,
                {static_cast<std::int64_t>(components)}}};
    for (std::size_t k = 0; k < count * components; ++k) {
      if (categories.empty()) {
        reinterpret_cast<float*>(bytes.data())[k] =
            head[k] + std::exp(log_std[k % components]) * normal(random);
      } else {
        reinterpret_cast<std::int32_t*>(bytes.data())[k] = static_cast<std::int32_t>(
            random() % static_cast<std::uint64_t>(categories[k % components]));
      }
    }
    std::vector<float> logp(count), entropy(count), log_probs(head.size());
    distribution.evaluate(head, log_std, actions, logp, entropy, log_probs);
    for (const float l : logp) old_logp.push_back(l + 0.3F * normal(random));
  }

  LossRows rows() const {
    return {.head = head,
            .value = value,
            .log_std = log_std,
            .actions = actions,
            .old_logp = old_logp,
            .old_value = old_value,
            .advantage = advantage,
            .returns = returns};
  }

  std::vector<std::int64_t> categories;
  ActionDistribution distribution;
  std::vector<float> head, log_std, value, old_value, old_logp, advantage, returns;
  std::vector<std::byte> bytes;
  shm::TensorView actions;
};

/// Room for a loss's derivatives.
struct LossGradients {
  explicit LossGradients(const RandomLossRows& rows)
      : head(rows.head.size()), value(rows.value.size()), log_std(rows.log_std.size()) {}

  LossDerivatives views() { return {head, value, log_std}; }

  std::vector<float> head, value, log_std;
};

inline void expect_equal(const Losses& ours, const LossGradients& gradients,
                         const LossByTape& theirs) {
  EXPECT_NEAR(ours.policy, theirs.losses.policy, 1e-5);
  EXPECT_NEAR(ours.value, theirs.losses.value, 1e-5);
  EXPECT_NEAR(ours.entropy, theirs.losses.entropy, 1e-5);
  EXPECT_NEAR(ours.total, theirs.losses.total, 1e-5);
  expect_near(gradients.head, theirs.d_head, 1e-6, "derivative by head");
  expect_near(gradients.value, theirs.d_value, 1e-6, "derivative by value");
  expect_near(gradients.log_std, theirs.d_log_std, 1e-5, "derivative by log_std");
}

}  // namespace shoal::learn
