#include "shoal/learn/learner/advantages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace shoal::learn {
namespace {

/// (a - a.mean()) / (a.std() + 1e-8) of torch, whose deviation is the unbiased one.
std::vector<double> normalized_by_definition(const std::vector<float>& advantage) {
  const auto count = static_cast<double>(advantage.size());
  double sum = 0, squares = 0;
  for (const float a : advantage) sum += static_cast<double>(a);
  for (const float a : advantage) squares += std::pow(static_cast<double>(a) - sum / count, 2);
  std::vector<double> out;
  for (const float a : advantage)
    out.push_back((static_cast<double>(a) - sum / count) /
                  (std::sqrt(squares / (count - 1)) + 1e-8));
  return out;
}

TEST(NormalizeAdvantages, AsDefined) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(2, 3);
  std::vector<float> ours(257);
  for (auto& a : ours) a = normal(random);
  const auto theirs = normalized_by_definition(ours);
  normalize_advantages(ours);
  for (std::size_t i = 0; i < ours.size(); ++i)
    ASSERT_NEAR(ours[i], theirs[i], 1e-5 * (1 + std::abs(theirs[i]))) << i;
}

TEST(NormalizeAdvantages, OneRowStaysAsItIs) {
  std::vector<float> one{3};
  normalize_advantages(one);
  EXPECT_EQ(one[0], 3);
}

class AdvantagesTest : public testing::Test {
 protected:
  /// Three steps of two environments; the row (1, 1) is no transition.
  AdvantagesTest() {
    for (std::size_t i = 0; i < 6; ++i) {
      rollout_.reward()[i] = static_cast<float>(i) - 2;
      rollout_.value()[i] = 0.25F * static_cast<float>(i);
      rollout_.next_value()[i] = 0.5F;
      rollout_.terminated()[i] = rollout_.truncated()[i] = 0;
      rollout_.valid()[i] = i != 3;
    }
    config_.gamma = 0.9;
    config_.gae_lambda = 1;
  }

  collect::Rollout rollout_{3, 2, {{shm::DType::kF32, {1}}}, {shm::DType::kI32, {1}}};
  LearnerConfig config_;
  Advantages advantages_;
};

TEST_F(AdvantagesTest, LambdaOneIsTheNStepReturnLessTheValue) {
  config_.advantage_normalization = AdvantageNormalization::kNone;
  for (std::size_t i : {0U, 2U}) rollout_.next_value()[i] = rollout_.value()[i + 2];
  advantages_.estimate(rollout_, config_);
  EXPECT_EQ(advantages_.rows, (std::vector<std::int32_t>{0, 1, 2, 4, 5}));
  const double n_step = -2 + 0.9 * (0 + 0.9 * (2 + 0.9 * 0.5));
  EXPECT_NEAR(advantages_.returns[0], n_step, 1e-6);
  EXPECT_NEAR(advantages_.advantage[0], n_step - 0, 1e-6);
}

TEST_F(AdvantagesTest, NormalisedOverTheRolloutTheyAreNormalOverTheValidRows) {
  config_.advantage_normalization = AdvantageNormalization::kRollout;
  advantages_.estimate(rollout_, config_);
  double sum = 0, squares = 0;
  for (const auto r : advantages_.rows) {
    const double a = advantages_.advantage[static_cast<std::size_t>(r)];
    sum += a;
    squares += a * a;
  }
  EXPECT_NEAR(sum, 0, 1e-5);
  EXPECT_NEAR(squares, 4, 1e-4) << "an unbiased deviation of 1 over five rows";
}

TEST_F(AdvantagesTest, ExplainedVarianceIsOneOfPerfectValuesAndNoneOfReturnsThatDoNotVary) {
  advantages_.estimate(rollout_, config_);
  advantages_.returns.assign(rollout_.value().begin(), rollout_.value().end());
  EXPECT_NEAR(advantages_.explained_variance(rollout_), 1, 1e-12);
  advantages_.returns.assign(6, 1.5F);
  EXPECT_TRUE(std::isnan(advantages_.explained_variance(rollout_)));
}

}  // namespace
}  // namespace shoal::learn
