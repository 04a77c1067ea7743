#include "shoal/learn/a2c/a2c_loss.h"

#include <gtest/gtest.h>

#include "shoal/learn/testing/random_loss_rows.h"

namespace shoal::learn {
namespace {

class A2cLossBy : public testing::TestWithParam<LossCase> {};

TEST_P(A2cLossBy, EqualsTheTapeInDoublePrecision) {
  const RandomLossRows rows(GetParam(), 300, 11);
  for (const auto& coefficients : {LossCoefficients{.value_coef = 0.5F, .entropy_coef = 0},
                                   LossCoefficients{.value_coef = 0.25F, .entropy_coef = 0.03F}}) {
    A2cLoss loss(rows.distribution);
    LossGradients gradients(rows);
    const Losses ours = loss(rows.rows(), coefficients, gradients.views());
    expect_equal(ours, gradients, a2c_loss_by_tape(rows.rows(), rows.categories, coefficients));
  }
}

INSTANTIATE_TEST_SUITE_P(Distributions, A2cLossBy, testing::ValuesIn(kLossCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal::learn
