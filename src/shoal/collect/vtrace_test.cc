#include "shoal/collect/vtrace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "shoal/collect/gae.h"

namespace shoal::collect {
namespace {

/// Rows of several environments, time first.
struct Case {
  int steps = 0;
  int envs = 1;
  std::vector<float> log_ratio = {}, reward = {}, value = {}, next_value = {};
  std::vector<std::uint8_t> terminated = {}, truncated = {}, valid = {};
  float gamma = 0.9F;
  float lambda = 1;
  float rho_bar = 1;
  float c_bar = 1;
  bool bootstrap_truncated = true;

  VtraceInput input() const {
    return {.steps = steps,
            .envs = envs,
            .log_ratio = log_ratio,
            .reward = reward,
            .value = value,
            .next_value = next_value,
            .terminated = terminated,
            .truncated = truncated,
            .valid = valid,
            .gamma = gamma,
            .lambda = lambda,
            .rho_bar = rho_bar,
            .c_bar = c_bar,
            .bootstrap_truncated = bootstrap_truncated};
  }

  /// Advantages and targets.
  std::pair<std::vector<float>, std::vector<float>> run() const {
    std::vector<float> advantage(reward.size()), target(reward.size());
    vtrace(input(), advantage, target);
    return {advantage, target};
  }
};

/// Four steps of one environment.
Case four_rows() {
  Case rows{.steps = 4,
            .reward = {1, 0, -1, 2},
            .value = {0.5F, 1, -0.5F, 2},
            .next_value = {1, -0.5F, 2, 3},
            .terminated = {0, 0, 0, 0},
            .truncated = {0, 0, 0, 0},
            .valid = {1, 1, 1, 1}};
  for (const float ratio : {0.5F, 1.5F, 0.8F, 2.0F}) rows.log_ratio.push_back(std::log(ratio));
  return rows;
}

void expect_near(const std::vector<float>& ours, const std::vector<double>& wanted,
                 const char* what) {
  ASSERT_EQ(ours.size(), wanted.size());
  for (std::size_t k = 0; k < ours.size(); ++k)
    EXPECT_NEAR(ours[k], wanted[k], 2e-6 * (1 + std::abs(wanted[k]))) << what << " " << k;
}

void expect(const Case& rows, const std::vector<double>& target,
            const std::vector<double>& advantage) {
  const auto [our_advantage, our_target] = rows.run();
  expect_near(our_target, target, "target");
  expect_near(our_advantage, advantage, "advantage");
}

// The numbers of these five cases were worked out in double precision, outside this program.
TEST(Vtrace, EqualsNumbersWorkedOutElsewhere) {
  expect(four_rows(), {1.75602, 2.2356, 2.484, 4.7}, {1.25602, 1.2356, 2.984, 2.7});
}

TEST(Vtrace, NothingFlowsOutOfATerminatedStep) {
  Case rows = four_rows();
  rows.terminated[1] = 1;
  expect(rows, {0.75, 0, 2.484, 4.7}, {0.25, -1, 2.984, 2.7});
}

TEST(Vtrace, ATruncatedStepIsBootstrappedAndEndsTheSum) {
  Case rows = four_rows();
  rows.truncated[1] = 1;
  rows.next_value[1] = 0.7F;
  expect(rows, {1.0335, 0.63, 2.484, 4.7}, {0.5335, -0.37, 2.984, 2.7});
  rows.bootstrap_truncated = false;
  expect(rows, {0.75, 0, 2.484, 4.7}, {0.25, -1, 2.984, 2.7});
}

TEST(Vtrace, LambdaShortensTheTrace) {
  Case rows = four_rows();
  rows.lambda = 0.95F;
  expect(rows, {1.635286485, 2.018214, 2.3868, 4.7}, {1.1581963, 1.14812, 2.984, 2.7});
}

TEST(Vtrace, OfThePolicyThatActedTargetsAreNStepReturns) {
  Case rows = four_rows();
  rows.log_ratio.assign(4, 0);
  expect(rows, {3.6163, 2.907, 3.23, 4.7}, {3.1163, 1.907, 3.73, 2.7});
}

/// Next-step autoreset: the row after an end is not valid, some others neither.
Case random_rows(unsigned seed, bool on_policy) {
  Case rows{.steps = 23, .envs = 5};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::bernoulli_distribution ends(0.1);
  std::bernoulli_distribution faults(0.05);
  const auto count = static_cast<std::size_t>(rows.steps * rows.envs);
  for (auto* array : {&rows.reward, &rows.value, &rows.next_value, &rows.log_ratio})
    for (std::size_t k = 0; k < count; ++k) array->push_back(normal(random));
  if (on_policy) rows.log_ratio.assign(count, 0);
  rows.valid.assign(count, 1);
  for (auto* flags : {&rows.terminated, &rows.truncated}) flags->assign(count, 0);
  for (std::size_t k = 0; k < count; ++k) {
    const auto before = k - static_cast<std::size_t>(rows.envs);
    const bool after_end = k >= static_cast<std::size_t>(rows.envs) &&
                           (rows.terminated[before] != 0 || rows.truncated[before] != 0);
    if (after_end || faults(random)) {
      rows.valid[k] = 0;
    } else {
      rows.terminated[k] = ends(random);
      rows.truncated[k] = ends(random);
    }
  }
  return rows;
}

/// The double sum of the paper's equation (1), with lambda in c, for one row.
double target_by_sum(const Case& rows, int t, std::size_t env) {
  const auto at = [&](int s) { return static_cast<std::size_t>(s * rows.envs) + env; };
  double target = rows.value[at(t)];
  double product = 1;
  for (int s = t; s < rows.steps && rows.valid[at(s)] != 0; ++s) {
    const std::size_t row = at(s);
    const bool terminated = rows.terminated[row] != 0;
    const double ratio = std::exp(static_cast<double>(rows.log_ratio[row]));
    const double next = terminated ? 0 : rows.next_value[row];
    const double delta = std::min<double>(rows.rho_bar, ratio) *
                         (rows.reward[row] + rows.gamma * next - rows.value[row]);
    target += product * delta;
    product *= rows.gamma * rows.lambda * std::min<double>(rows.c_bar, ratio);
    if (terminated || rows.truncated[row] != 0) break;
  }
  return target;
}

/// Inside an episode the values of neighbouring rows are the same thing.
void join_values(Case& rows) {
  const auto envs = static_cast<std::size_t>(rows.envs);
  for (std::size_t k = 0; k + envs < rows.value.size(); ++k)
    if (rows.terminated[k] == 0 && rows.truncated[k] == 0)
      rows.next_value[k] = rows.value[k + envs];
}

TEST(Vtrace, EqualsThePapersSumInDoublePrecision) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Case rows = random_rows(seed, false);
    join_values(rows);
    rows.rho_bar = 1.5F;
    rows.c_bar = 0.9F;
    rows.lambda = 0.97F;
    const auto [advantage, target] = rows.run();
    for (int t = 0; t < rows.steps; ++t) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows.envs); ++i) {
        const auto row = static_cast<std::size_t>(t * rows.envs) + i;
        if (rows.valid[row] == 0) {
          EXPECT_EQ(advantage[row], 0);
          EXPECT_EQ(target[row], rows.value[row]);
          continue;
        }
        EXPECT_NEAR(target[row], target_by_sum(rows, t, i), 1e-4) << "seed " << seed << " t " << t;
        const bool ends = rows.terminated[row] != 0 || rows.truncated[row] != 0;
        const bool goes_on = !ends && t + 1 < rows.steps &&
                             rows.valid[row + static_cast<std::size_t>(rows.envs)] != 0;
        double next = rows.terminated[row] != 0 ? 0 : rows.next_value[row];
        if (goes_on) next = target_by_sum(rows, t + 1, i);
        const double rho = std::min<double>(rows.rho_bar, std::exp(double{rows.log_ratio[row]}));
        EXPECT_NEAR(advantage[row], rho * (rows.reward[row] + rows.gamma * next - rows.value[row]),
                    1e-4);
      }
    }
  }
}

TEST(Vtrace, OfThePolicyThatActedIsGeneralisedAdvantageEstimationWithLambdaOne) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Case rows = random_rows(seed, true);
    join_values(rows);
    const auto [advantage, target] = rows.run();
    std::vector<float> by_gae(advantage.size()), returns(advantage.size());
    gae({.steps = rows.steps,
         .envs = rows.envs,
         .reward = rows.reward,
         .value = rows.value,
         .next_value = rows.next_value,
         .terminated = rows.terminated,
         .truncated = rows.truncated,
         .valid = rows.valid,
         .gamma = rows.gamma,
         .lambda = 1},
        by_gae, returns);
    for (std::size_t k = 0; k < advantage.size(); ++k) {
      EXPECT_NEAR(advantage[k], by_gae[k], 2e-5) << "seed " << seed << " row " << k;
      EXPECT_NEAR(target[k], returns[k], 2e-5) << "seed " << seed << " row " << k;
    }
  }
}

}  // namespace
}  // namespace shoal::collect
