#include "shoal/learn/ppo/ppo_loss.h"

#include <gtest/gtest.h>

#include "shoal/learn/testing/random_loss_rows.h"

namespace shoal::learn {
namespace {

void compare(const RandomLossRows& rows, const PpoClipping& clipping,
             const LossCoefficients& coefficients) {
  PpoLoss loss(rows.distribution);
  LossGradients gradients(rows);
  const PpoLosses ours = loss(rows.rows(), clipping, coefficients, gradients.views());
  const PpoLossByTape theirs =
      ppo_loss_by_tape(rows.rows(), rows.categories, clipping, coefficients);
  expect_equal(ours, gradients, theirs);
  EXPECT_NEAR(ours.approx_kl, theirs.approx_kl, 1e-5);
  EXPECT_EQ(ours.clip_fraction, theirs.clip_fraction);
  EXPECT_GT(ours.clip_fraction, 0.1) << "the rows must reach the clipped branches";
  EXPECT_LT(ours.clip_fraction, 0.9);
}

class PpoLossBy : public testing::TestWithParam<LossCase> {};

TEST_P(PpoLossBy, EqualsTheTape) {
  const RandomLossRows rows(GetParam(), 300, 11);
  compare(rows, {.clip_range = 0.2F}, {.value_coef = 0.5F, .entropy_coef = 0.0F});
  compare(rows, {.clip_range = 0.1F}, {.value_coef = 0.25F, .entropy_coef = 0.03F});
}

TEST_P(PpoLossBy, EqualsTheTapeWithClippedValues) {
  const RandomLossRows rows(GetParam(), 300, 12);
  for (const bool pessimistic : {true, false}) {
    compare(rows, {.clip_range_value = 0.3F, .pessimistic_value_clip = pessimistic},
            {.entropy_coef = 0.01F});
  }
}

INSTANTIATE_TEST_SUITE_P(Distributions, PpoLossBy, testing::ValuesIn(kLossCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::learn
