#include "shoal/learn/sac/squashed_gaussian.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace shoal::learn {
namespace {

// Numbers of an independent computation in double precision.
TEST(SquashedGaussian, OneSampleIsWhatTheFormulaGives) {
  const std::array<float, 2> head = {0.3F, -0.5F};
  const std::array<float, 1> noise = {0.7F};
  std::array<float, 1> action{};
  EXPECT_NEAR(squash(head, noise, action), -0.179318236597494, 1e-6);
  EXPECT_NEAR(action[0], 0.6197329880937158, 1e-6);
  EXPECT_NEAR(squash_correction(0.7245714617988434), -0.4846202966071786, 1e-12);
  std::array<float, 2> by{};
  const std::array<float, 1> nothing = {0};
  squash_backward(head, noise, action, 1, nothing, by);
  EXPECT_NEAR(by[0], 1.2394659761874316, 1e-6);
  EXPECT_NEAR(by[1], -0.4737581186401717, 1e-6);
}

// log(1 - tanh(x)^2 + 1e-6), as others have it, is -13.8155 here, and without the 1e-6 it is not finite.
TEST(SquashedGaussian, TheCorrectionIsExactWhereTheTanhRoundsToOne) {
  EXPECT_NEAR(squash_correction(10), -18.6137, 1e-4);
  EXPECT_NEAR(squash_correction(-10), -18.6137, 1e-4);
  EXPECT_NEAR(squash_correction(8), -14.6137, 1e-4);
  EXPECT_NEAR(squash_correction(0), 0, 1e-15);
  EXPECT_NEAR(squash_correction(300), 2 * (std::log(2.0) - 300), 1e-9);
}

TEST(SquashedGaussian, TheDeviationIsHeldAndThenPassesNoDerivativeOn) {
  const std::array<float, 1> noise = {0.1F};
  std::array<float, 1> at_limit{}, beyond{};
  const std::array<float, 2> most = {0, 2}, more = {0, 5};
  EXPECT_EQ(squash(most, noise, at_limit), squash(more, noise, beyond));
  EXPECT_EQ(at_limit, beyond);
  std::array<float, 2> by{};
  const std::array<float, 1> by_action = {1};
  squash_backward(more, noise, beyond, 1, by_action, by);
  EXPECT_EQ(by[1], 0);
  squash_backward(most, noise, at_limit, 1, by_action, by);
  EXPECT_NE(by[1], 0);
}

}  // namespace
}  // namespace shoal::learn
