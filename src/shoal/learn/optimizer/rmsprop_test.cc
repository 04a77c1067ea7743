#include "shoal/learn/optimizer/rmsprop.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace shoal::learn {
namespace {

/// 20 steps from i / 8 along gradients that are exact in binary.
struct TwentySteps {
  explicit TwentySteps(RmsPropOptions options) : optimizer(5, options) {
    for (int k = 0; k < 20; ++k) {
      std::vector<float> gradient;
      for (int i = 0; i < 5; ++i)
        gradient.push_back(static_cast<float>((i * 7 + k * 3) % 11 - 5) / 4);
      optimizer.step(parameters, gradient, 1.0, 0.01);
    }
  }
  std::vector<float> parameters{0, 0.125F, 0.25F, 0.375F, 0.5F};
  RmsProp optimizer;
};

void expect_all_near(std::span<const float> ours, const std::vector<double>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < theirs.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 1e-7) << i;
}

TEST(RmsProp, StepsAsTorchDoes) {
  // torch.optim.RMSprop(lr=0.01, alpha=0.9, eps=1e-3), torch 2.13
  TwentySteps run({.alpha = 0.9, .eps = 1e-3});
  expect_all_near(run.parameters,
                  {0.020289056, 0.0723485202, 0.243715048, 0.365237355, 0.433207244});
  expect_all_near(run.optimizer.averages()[0].values,
                  {0.585258961, 0.552402735, 0.507736683, 0.594123006, 0.510173619});
  EXPECT_STREQ(run.optimizer.averages()[0].name, "square_avg");
  EXPECT_EQ(run.optimizer.steps(), 20);
}

TEST(RmsProp, StepsAsStableBaselines3sRmsPropTfLikeDoes) {
  // stable_baselines3.common.sb2_compat.rmsprop_tf_like.RMSpropTFLike, 2.9.2, the same numbers
  TwentySteps run({.alpha = 0.9, .eps = 1e-3, .tensorflow = true});
  expect_all_near(run.parameters,
                  {0.00483259931, 0.109465778, 0.242542103, 0.376712233, 0.4783113});
  expect_all_near(run.optimizer.averages()[0].values,
                  {0.706835449, 0.673979342, 0.629313409, 0.715699613, 0.631750166});
}

}  // namespace
}  // namespace shoal::learn
