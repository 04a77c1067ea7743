// What every optimiser keeps to.
#include "shoal/learn/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/learn/network/parameters.h"
#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

class OptimizerOf : public testing::TestWithParam<OptimizerKind> {
 protected:
  static std::unique_ptr<Optimizer> optimizer(std::size_t size) {
    LearnerConfig config;
    config.optimizer = GetParam();
    return make_optimizer(config, size);
  }
};

TEST_P(OptimizerOf, ScalesTheGradientFirst) {
  std::vector<float> once{1, 2, 3}, scaled{1, 2, 3};
  optimizer(3)->step(once, std::vector<float>{1, -2, 4}, 1.0, 0.1);
  optimizer(3)->step(scaled, std::vector<float>{2, -4, 8}, 0.5, 0.1);
  EXPECT_EQ(once, scaled);
  EXPECT_NE(once, (std::vector<float>{1, 2, 3}));
}

TEST_P(OptimizerOf, PaddingStaysZero) {
  AlignedFloats parameters(16);
  const auto subject = optimizer(16);
  for (int k = 0; k < 3; ++k) subject->step(parameters.span(), std::vector<float>(16), 1.0, 0.1);
  for (const float p : parameters.span()) EXPECT_EQ(p, 0.0F);
}

TEST_P(OptimizerOf, AveragesThatHaveFadedAreZero) {
  std::vector<float> parameters{1, 2, 3};
  const auto subject = optimizer(3);
  subject->step(parameters, std::vector<float>{1, -2, 1e-20F}, 1.0, 0.1);
  // 0.9 to the power of 830 is below every normal number; 0.99 to 8,700, 0.999 to 88,000.
  for (int k = 0; k < 100'000; ++k) subject->step(parameters, std::vector<float>(3), 1.0, 1e-6);
  for (const auto& average : subject->averages())
    for (const float a : average.values) EXPECT_EQ(a, 0.0F) << average.name;
  for (const float p : parameters) EXPECT_TRUE(std::isfinite(p));
}

TEST_P(OptimizerOf, ATeamGivesTheSameBits) {
  constexpr std::size_t kSize = 200'003;
  std::vector<float> alone = random_floats(kSize, 1), together = alone;
  const auto one = optimizer(kSize), other = optimizer(kSize);
  ThreadTeam team(3);
  for (unsigned k = 0; k < 3; ++k) {
    const auto gradient = random_floats(kSize, 2 + k);
    EXPECT_EQ(norm(gradient), norm(gradient, &team));
    one->step(alone, gradient, 0.5, 1e-2);
    other->step(together, gradient, 0.5, 1e-2, &team);
  }
  EXPECT_EQ(alone, together);
  for (std::size_t k = 0; k < one->averages().size(); ++k)
    EXPECT_TRUE(std::ranges::equal(one->averages()[k].values, other->averages()[k].values));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerOf,
                         testing::Values(OptimizerKind::kAdam, OptimizerKind::kRmsProp,
                                         OptimizerKind::kRmsPropTf),
                         [](const auto& info) -> std::string {
                           switch (info.param) {
                             case OptimizerKind::kAdam:
                               return "adam";
                             case OptimizerKind::kRmsProp:
                               return "rmsprop";
                             case OptimizerKind::kRmsPropTf:
                               return "rmsprop_tf";
                           }
                           return "";
                         });

}  // namespace
}  // namespace shoal::learn
