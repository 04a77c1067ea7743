#include "shoal/learn/ppo/ppo_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "shoal/learn/testing/torch_oracle.h"

namespace shoal::learn {
namespace {

env::Space action_space(const std::vector<std::int64_t>& categories, std::int64_t dimensions) {
  if (categories.empty()) return env::Box{{shm::DType::kF32, {dimensions}}, {-1}, {1}};
  if (categories.size() == 1) return env::Discrete{.n = categories[0]};
  return env::MultiDiscrete{
      .nvec = categories, .start = {}, .shape = {static_cast<std::int64_t>(categories.size())}};
}

// Random rows, some of them far from the old policy so that every branch of the loss is taken.
struct RandomRows {
  RandomRows(const std::vector<std::int64_t>& categories, std::int64_t dimensions, std::size_t rows,
             unsigned seed)
      : categories(categories),
        distribution(collect::ActionDecoder(action_space(categories, dimensions))) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    auto fill = [&](std::vector<float>& v, std::size_t n, float scale) {
      v.resize(n);
      for (auto& x : v) x = scale * normal(random);
    };
    const std::size_t width = distribution.head_size();
    fill(head, rows * width, 2);
    if (categories.empty()) fill(log_std, width, 0.5F);
    fill(value, rows, 1);
    fill(old_value, rows, 1);
    fill(advantage, rows, 1);
    fill(returns, rows, 1);
    const std::size_t components = distribution.action_size();
    bytes.resize(rows * components * 4);
    if (categories.empty()) {
      actions = {bytes.data(),
                 static_cast<std::int64_t>(rows),
                 {shm::DType::kF32, {static_cast<std::int64_t>(components)}}};
      for (std::size_t k = 0; k < rows * components; ++k) {
        reinterpret_cast<float*>(bytes.data())[k] =
            head[k] + std::exp(log_std[k % components]) * normal(random);
      }
    } else {
      actions = {bytes.data(),
                 static_cast<std::int64_t>(rows),
                 {shm::DType::kI32, {static_cast<std::int64_t>(components)}}};
      for (std::size_t k = 0; k < rows * components; ++k) {
        reinterpret_cast<std::int32_t*>(bytes.data())[k] = static_cast<std::int32_t>(
            random() % static_cast<std::uint64_t>(categories[k % components]));
      }
    }
    std::vector<float> logp(rows), entropy(rows), log_probs(head.size());
    distribution.evaluate(head, log_std, actions, logp, entropy, log_probs);
    for (const float l : logp) old_logp.push_back(l + 0.3F * normal(random));
  }

  PpoMinibatch batch() const {
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

void expect_near(const std::vector<float>& ours, const std::vector<float>& theirs, double tolerance,
                 const char* what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_NEAR(ours[i], theirs[i], tolerance * (1 + std::abs(theirs[i]))) << what << " " << i;
  }
}

void compare(const RandomRows& rows, const PpoCoefficients& coefficients) {
  PpoLoss loss(rows.distribution);
  std::vector<float> d_head(rows.head.size()), d_value(rows.value.size()),
      d_log_std(rows.log_std.size());
  const PpoLosses ours = loss(rows.batch(), coefficients, d_head, d_value, d_log_std);
  const LossByTorch theirs = loss_by_torch(rows.batch(), rows.categories, coefficients);
  EXPECT_NEAR(ours.policy, theirs.losses.policy, 1e-5);
  EXPECT_NEAR(ours.value, theirs.losses.value, 1e-5);
  EXPECT_NEAR(ours.entropy, theirs.losses.entropy, 1e-5);
  EXPECT_NEAR(ours.total, theirs.losses.total, 1e-5);
  EXPECT_NEAR(ours.approx_kl, theirs.losses.approx_kl, 1e-5);
  EXPECT_EQ(ours.clip_fraction, theirs.losses.clip_fraction);
  expect_near(d_head, theirs.d_head, 1e-6, "derivative by head");
  expect_near(d_value, theirs.d_value, 1e-6, "derivative by value");
  expect_near(d_log_std, theirs.d_log_std, 1e-5, "derivative by log_std");
  EXPECT_GT(ours.clip_fraction, 0.1) << "the rows must reach the clipped branches";
  EXPECT_LT(ours.clip_fraction, 0.9);
}

struct LossCase {
  const char* name;
  std::vector<std::int64_t> categories;
  std::int64_t dimensions = 0;
};

class PpoLossBy : public testing::TestWithParam<LossCase> {};

TEST_P(PpoLossBy, EqualsAutograd) {
  const RandomRows rows(GetParam().categories, GetParam().dimensions, 300, 11);
  compare(rows, {.clip_range = 0.2F, .value_coef = 0.5F, .entropy_coef = 0.0F});
  compare(rows, {.clip_range = 0.1F, .value_coef = 0.25F, .entropy_coef = 0.03F});
}

TEST_P(PpoLossBy, EqualsAutogradWithClippedValues) {
  const RandomRows rows(GetParam().categories, GetParam().dimensions, 300, 12);
  compare(rows, {.clip_range_value = 0.3F, .pessimistic_value_clip = true, .entropy_coef = 0.01F});
  compare(rows, {.clip_range_value = 0.3F, .pessimistic_value_clip = false, .entropy_coef = 0.01F});
}

INSTANTIATE_TEST_SUITE_P(Distributions, PpoLossBy,
                         testing::Values(LossCase{"Categorical", {5}}, LossCase{"TwoChoices", {2}},
                                         LossCase{"MultiCategorical", {3, 2, 4}},
                                         LossCase{"Gaussian", {}, 3},
                                         LossCase{"OneDimension", {}, 1}),
                         [](const auto& info) { return info.param.name; });

TEST(NormalizeAdvantages, AsTorchDoes) {
  const RandomRows rows({2}, 0, 257, 3);
  std::vector<float> ours = rows.advantage;
  normalize_advantages(ours);
  expect_near(ours, normalized_by_torch(rows.advantage), 1e-5, "advantage");
}

TEST(NormalizeAdvantages, OneRowStaysAsItIs) {
  std::vector<float> one{3};
  normalize_advantages(one);
  EXPECT_EQ(one[0], 3);
}

}  // namespace
}  // namespace shoal::learn
