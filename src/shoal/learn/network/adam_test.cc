#include "shoal/learn/network/adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "shoal/learn/testing/random_floats.h"
#include "shoal/learn/testing/torch_oracle.h"

namespace shoal::learn {
namespace {

TEST(Adam, StepsAsTorchDoes) {
  constexpr std::size_t kSize = 1003;
  std::vector<float> ours = random_floats(kSize, 1);
  std::vector<float> theirs = ours;
  std::vector<float> exp_avg(kSize), exp_avg_sq(kSize);
  Adam adam(kSize, {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-5});
  for (int step = 1; step <= 50; ++step) {
    std::vector<float> gradient = random_floats(kSize, 100U + static_cast<unsigned>(step));
    adam.step(ours, gradient, 1.0, 1e-2);
    adam_by_torch(theirs, gradient, exp_avg, exp_avg_sq, step, 1e-2, 0.9, 0.999, 1e-5);
  }
  for (std::size_t i = 0; i < kSize; ++i) ASSERT_NEAR(ours[i], theirs[i], 2e-6) << i;
  EXPECT_EQ(adam.steps(), 50);
}

TEST(GradientNorm, IsTheL2NormWhateverTheLength) {
  for (const std::size_t n : {1U, 15U, 16U, 17U, 1000U}) {
    const auto gradient = random_floats(n, static_cast<unsigned>(n));
    double squares = 0;
    for (const float g : gradient) squares += static_cast<double>(g) * g;
    EXPECT_NEAR(norm(gradient), std::sqrt(squares), 1e-9);
  }
}

TEST(GradientNorm, IsClippedAsTorchDoes) {
  const auto gradient = random_floats(100, 4);
  EXPECT_NEAR(clip_factor(norm(gradient), 0.5), clip_factor_by_torch(gradient, 0.5), 1e-12);
  EXPECT_EQ(clip_factor(norm(gradient), 1000), 1.0);
  EXPECT_EQ(clip_factor(norm(gradient), 0), 1.0) << "0 does not clip";
}

}  // namespace
}  // namespace shoal::learn
