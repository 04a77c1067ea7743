#include "shoal/learn/impala/impala.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "shoal/learn/a2c/a2c.h"
#include "shoal/learn/testing/learners.h"
#include "shoal/learn/testing/policy_difference.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {
namespace {

using vector::AutoresetMode;

constexpr const char* kCartPole = "shoal/CartPole-v1";

// A rollout of the newest weights has ratios of 1, so that V-trace's targets are n-step returns.
// Values and log-probabilities are computed again for all rows at once, so they differ in their
// last bits.
void expect_a2c_of_the_newest_weights(const std::string& id, AutoresetMode mode) {
  ImpalaConfig config;
  config.num_steps = 60;
  config.deterministic = true;
  A2cConfig same;
  static_cast<LearnerConfig&>(same) = config;
  const auto envs = serial_envs(id, 8, mode);
  const auto a2c_envs = serial_envs(id, 8, mode);
  const auto impala = learner_for(*envs, config, 7);
  const auto a2c = learner_for(*a2c_envs, same, 7);
  const LearnerState before = impala->state();
  impala->begin(*envs);
  a2c->begin(*a2c_envs);
  const IterationStats ours = impala->iterate();
  const IterationStats theirs = a2c->iterate();
  EXPECT_EQ(ours.policy_lag, 0);
  EXPECT_TRUE(std::isnan(theirs.policy_lag));
  EXPECT_EQ(ours.episodes, theirs.episodes);
  EXPECT_EQ(ours.finished, theirs.finished);
  EXPECT_NEAR(ours.grad_norm, theirs.grad_norm, 1e-4 * theirs.grad_norm);
  EXPECT_NEAR(ours.policy_loss, theirs.policy_loss, 1e-4 * (1 + std::abs(theirs.policy_loss)));
  EXPECT_NEAR(ours.value_loss, theirs.value_loss, 1e-4 * theirs.value_loss);
  EXPECT_NEAR(ours.entropy, theirs.entropy, 1e-5);
  EXPECT_LT(policy_difference(impala->state(), a2c->state()), 2e-5);
  EXPECT_GT(policy_difference(impala->state(), before), 1e-3);
}

TEST(Impala, OfTheNewestWeightsIsA2c) {
  expect_a2c_of_the_newest_weights(kCartPole, AutoresetMode::kNextStep);
}

TEST(Impala, OfTheNewestWeightsIsA2cWhereEpisodesBeginInTheSameStep) {
  expect_a2c_of_the_newest_weights(kCartPole, AutoresetMode::kSameStep);
}

TEST(Impala, OfTheNewestWeightsIsA2cWhereActionsAreABox) {
  expect_a2c_of_the_newest_weights("shoal/Pendulum-v1", AutoresetMode::kNextStep);
}

// What A2C would learn from the same second rollout, whose weights are one update old, is something
// else.
TEST(Impala, CorrectsForTheAgeOfTheWeights) {
  auto second = [](double rho_bar) {
    ImpalaConfig config;
    config.deterministic = true;
    config.learning_rate = 0.05;  // far
    config.rho_bar = rho_bar;
    const auto envs = serial_envs(kCartPole, 4);
    const auto impala = learner_for(*envs, config, 7);
    impala->begin(*envs);
    impala->iterate();
    return impala->iterate();
  };
  const IterationStats corrected = second(1);
  EXPECT_EQ(corrected.policy_lag, 1);
  EXPECT_NE(corrected.policy_loss, second(0.1).policy_loss) << "ratios are cut";
}

TEST(Impala, HasNoNumberThatOthersHave) {
  const auto envs = serial_envs(kCartPole, 4);
  const auto impala = learner_for(*envs, ImpalaConfig(), 1);
  impala->begin(*envs);
  const IterationStats stats = impala->iterate();
  EXPECT_TRUE(std::isnan(stats.approx_kl));
  EXPECT_TRUE(std::isnan(stats.clip_range));
  EXPECT_EQ(stats.epochs, 1);
  EXPECT_EQ(stats.steps, 80);
}

}  // namespace
}  // namespace shoal::learn
