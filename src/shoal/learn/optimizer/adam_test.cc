#include "shoal/learn/optimizer/adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "shoal/learn/testing/random_floats.h"

namespace shoal::learn {
namespace {

/// Adam by its definition (Kingma and Ba, 2015, algorithm 1) in double precision, as
/// torch.optim.Adam has it: eps is added to the corrected root. Python tests compare with torch itself.
struct AdamByDefinition {
  explicit AdamByDefinition(const std::vector<float>& from)
      : parameters(from.begin(), from.end()), m(from.size()), v(from.size()) {}

  void step(const std::vector<float>& gradient, double rate, double beta1, double beta2,
            double eps) {
    ++steps;
    for (std::size_t i = 0; i < m.size(); ++i) {
      const double g = gradient[i];
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(beta1, steps));
      const double v_hat = v[i] / (1 - std::pow(beta2, steps));
      parameters[i] -= rate * m_hat / (std::sqrt(v_hat) + eps);
    }
  }

  std::vector<double> parameters, m, v;
  int steps = 0;
};

TEST(Adam, StepsAsDefined) {
  constexpr std::size_t kSize = 1003;
  std::vector<float> ours = random_floats(kSize, 1);
  AdamByDefinition theirs(ours);
  Adam adam(kSize, {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-5});
  for (int step = 1; step <= 50; ++step) {
    const auto gradient = random_floats(kSize, 100U + static_cast<unsigned>(step));
    adam.step(ours, gradient, 1.0, 1e-2);
    theirs.step(gradient, 1e-2, 0.9, 0.999, 1e-5);
  }
  for (std::size_t i = 0; i < kSize; ++i) ASSERT_NEAR(ours[i], theirs.parameters[i], 2e-6) << i;
  EXPECT_EQ(adam.steps(), 50);
}

TEST(GradientNorm, IsTheL2NormWhateverTheLength) {
  for (const std::size_t n : {1U, 15U, 16U, 17U, 1000U, 65536U, 150'001U}) {
    const auto gradient = random_floats(n, static_cast<unsigned>(n));
    double squares = 0;
    for (const float g : gradient) squares += static_cast<double>(g) * g;
    EXPECT_NEAR(norm(gradient), std::sqrt(squares), 1e-8);
  }
}

TEST(GradientNorm, IsClippedAsTorchsClipGradNormDoes) {
  const auto gradient = random_floats(100, 4);
  double squares = 0;
  for (const float g : gradient) squares += static_cast<double>(g) * g;
  EXPECT_NEAR(clip_factor(norm(gradient), 0.5), 0.5 / (std::sqrt(squares) + 1e-6), 1e-12);
  EXPECT_EQ(clip_factor(norm(gradient), 1000), 1.0);
  EXPECT_EQ(clip_factor(norm(gradient), 0), 1.0) << "0 does not clip";
}

}  // namespace
}  // namespace shoal::learn
