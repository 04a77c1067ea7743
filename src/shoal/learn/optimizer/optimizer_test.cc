// What every optimiser keeps to.
#include "shoal/learn/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <vector>

#include "shoal/learn/network/parameters.h"

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
