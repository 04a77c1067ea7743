#include "shoal/collect/gae.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace shoal::collect {
namespace {

// One environment's rows, or several with time first.
struct Case {
  int steps = 0;
  int envs = 1;
  std::vector<float> reward, value, next_value;
  std::vector<std::uint8_t> terminated, truncated, valid;
  bool bootstrap_truncated = true;

  std::pair<std::vector<float>, std::vector<float>> run(float gamma, float lambda) const {
    std::vector<float> advantage(reward.size()), returns(reward.size());
    gae({.steps = steps,
         .envs = envs,
         .reward = reward,
         .value = value,
         .next_value = next_value,
         .terminated = terminated,
         .truncated = truncated,
         .valid = valid,
         .gamma = gamma,
         .lambda = lambda,
         .bootstrap_truncated = bootstrap_truncated},
        advantage, returns);
    return {advantage, returns};
  }
};

// gamma = lambda = 0.5, so that every number below is exact.
//   t            0      1 (terminated)   2 (autoreset row)   3      4 (the rollout ends)
//   reward       1      2                0                   4      8
//   value        2      4                100                 1      3
//   next_value   4      100              1                   3      6
Case five_rows() {
  return {.steps = 5,
          .reward = {1, 2, 0, 4, 8},
          .value = {2, 4, 100, 1, 3},
          .next_value = {4, 100, 1, 3, 6},
          .terminated = {0, 1, 0, 0, 0},
          .truncated = {0, 0, 0, 0, 0},
          .valid = {1, 1, 0, 1, 1}};
}

TEST(Gae, HandComputedCase) {
  const auto [advantage, returns] = five_rows().run(0.5F, 0.5F);
  // t = 4: 8 + 0.5 * 6 - 3 = 8;  t = 3: 4 + 0.5 * 3 - 1 + 0.25 * 8 = 6.5;  t = 2: masked
  // t = 1: 2 - 4 = -2 (terminated);  t = 0: 1 + 0.5 * 4 - 2 + 0.25 * -2 = 0.5
  EXPECT_EQ(advantage, (std::vector<float>{0.5F, -2, 0, 6.5F, 8}));
  EXPECT_EQ(returns, (std::vector<float>{2.5F, 2, 100, 7.5F, 11}));
}

TEST(Gae, TruncatedStepIsBootstrappedAndEndsTheSum) {
  Case rows = five_rows();
  rows.terminated[1] = 0;
  rows.truncated[1] = 1;
  rows.next_value[1] = 20;  // V of the observation that the episode was cut at
  const auto [advantage, returns] = rows.run(0.5F, 0.5F);
  // t = 1: 2 + 0.5 * 20 - 4 = 8;  t = 0: 1 + 0.5 * 4 - 2 + 0.25 * 8 = 3; later rows as before
  EXPECT_EQ(advantage, (std::vector<float>{3, 8, 0, 6.5F, 8}));
}

TEST(Gae, TruncationAsTerminationWhenAsked) {
  Case rows = five_rows();
  rows.terminated[1] = 0;
  rows.truncated[1] = 1;
  rows.bootstrap_truncated = false;
  EXPECT_EQ(rows.run(0.5F, 0.5F), five_rows().run(0.5F, 0.5F));
}

TEST(Gae, NothingOfAnAutoresetRowReachesOtherRows) {
  Case rows = five_rows();
  const auto before = rows.run(0.99F, 0.95F).first;
  rows.reward[2] = 1e6F;
  rows.value[2] = -1e6F;
  rows.next_value[2] = 1e6F;
  EXPECT_EQ(rows.run(0.99F, 0.95F).first, before);
}

TEST(Gae, NothingFlowsOutOfAnInvalidRowInTheMiddleOfAnEpisode) {
  Case rows{.steps = 2,
            .reward = {1, 1e6F},
            .value = {0, 0},
            .next_value = {10, 1e6F},
            .terminated = {0, 0},
            .truncated = {0, 1},
            .valid = {1, 0}};
  EXPECT_EQ(rows.run(0.5F, 0.5F).first, (std::vector<float>{6, 0}));
}

// The definition, forwards: the sum of discounted deltas until the episode or the rollout ends.
double oracle(const Case& c, int t, int i, double gamma, double lambda) {
  double sum = 0;
  double weight = 1;
  for (int k = t; k < c.steps; ++k) {
    const auto at = static_cast<std::size_t>(k * c.envs + i);
    if (c.valid[at] == 0) break;
    const double bootstrap = c.terminated[at] != 0 ? 0.0 : static_cast<double>(c.next_value[at]);
    sum += weight * (static_cast<double>(c.reward[at]) + gamma * bootstrap -
                     static_cast<double>(c.value[at]));
    if ((c.terminated[at] | c.truncated[at]) != 0) break;
    weight *= gamma * lambda;
  }
  return sum;
}

TEST(Gae, EqualsTheDefinitionInDoublePrecision) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const auto& [steps, envs] : {std::pair{1, 1}, {40, 1}, {33, 7}, {128, 32}}) {
    Case c;
    c.steps = steps;
    c.envs = envs;
    for (int k = 0; k < steps * envs; ++k) {
      c.reward.push_back(normal(random));
      c.value.push_back(normal(random));
      c.next_value.push_back(normal(random));
      c.terminated.push_back(random() % 16 == 0);
      c.truncated.push_back(random() % 16 == 0);
      c.valid.push_back(random() % 8 != 0);
    }
    const auto [advantage, returns] = c.run(0.99F, 0.95F);
    for (int t = 0; t < steps; ++t) {
      for (int i = 0; i < envs; ++i) {
        const auto at = static_cast<std::size_t>(t * envs + i);
        ASSERT_NEAR(advantage[at], oracle(c, t, i, 0.99F, 0.95F), 2e-5)
            << "t " << t << " env " << i;
        ASSERT_FLOAT_EQ(returns[at], advantage[at] + c.value[at]);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::collect
