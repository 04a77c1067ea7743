#include "shoal/learn/a2c/a2c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "shoal/learn/ppo/ppo.h"
#include "shoal/learn/testing/learners.h"
#include "shoal/learn/testing/policy_difference.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {
namespace {

using vector::AutoresetMode;

constexpr const char* kCartPole = "shoal/CartPole-v1";

// A Box's actions differ in their last bits, and so do rewards.
void expect_same_episodes(const std::vector<collect::Episode>& ours,
                          const std::vector<collect::Episode>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t k = 0; k < ours.size(); ++k) {
    EXPECT_EQ(ours[k].env, theirs[k].env);
    EXPECT_EQ(ours[k].length, theirs[k].length);
    EXPECT_NEAR(ours[k].episode_return, theirs[k].episode_return,
                1e-4 * std::abs(theirs[k].episode_return));
  }
}

// "A2C is a special case of PPO" (Huang et al., 2022, arXiv:2205.09123): with one epoch over one
// minibatch the ratio is 1, so that nothing is clipped and its derivative is that of the
// log-probability. The rows' order differs, so sums differ in their last bits.
void expect_ppo_with_one_minibatch(const std::string& id, OptimizerKind optimizer,
                                   AutoresetMode mode) {
  A2cConfig a2c_config;
  a2c_config.optimizer = optimizer;
  a2c_config.entropy_coef = 0.01;
  a2c_config.num_steps = 8;
  a2c_config.gae_lambda = 0.95;
  PpoConfig ppo_config;
  static_cast<LearnerConfig&>(ppo_config) = a2c_config;
  ppo_config.epochs = 1;
  ppo_config.batch_size = 1'000'000;
  const auto a2c_envs = serial_envs(id, 8, mode);
  const auto ppo_envs = serial_envs(id, 8, mode);
  const auto a2c = learner_for(*a2c_envs, a2c_config, 7);
  const auto ppo = learner_for(*ppo_envs, ppo_config, 7);
  a2c->begin(*a2c_envs);
  ppo->begin(*ppo_envs);
  for (int k = 0; k < 40; ++k) {
    const LearnerState before = a2c->state();
    const IterationStats ours = a2c->iterate();
    const IterationStats theirs = ppo->iterate();
    expect_same_episodes(ours.finished, theirs.finished);
    EXPECT_NEAR(ours.grad_norm, theirs.grad_norm, 1e-4 * theirs.grad_norm);
    EXPECT_NEAR(ours.value_loss, theirs.value_loss, 1e-4 * theirs.value_loss);
    EXPECT_NEAR(ours.entropy, theirs.entropy, 1e-5);
    EXPECT_NEAR(theirs.approx_kl, 0, 1e-9);
    EXPECT_EQ(theirs.clip_fraction, 0);
    const LearnerState after = a2c->state();
    ASSERT_LT(policy_difference(after, ppo->state()), 1e-5) << "after iteration " << k + 1;
    ASSERT_GT(policy_difference(after, before), 1e-5) << "iteration " << k + 1 << " does nothing";
  }
}

TEST(A2c, IsPpoWithOneEpochAndOneMinibatch) {
  for (const auto optimizer :
       {OptimizerKind::kAdam, OptimizerKind::kRmsProp, OptimizerKind::kRmsPropTf})
    expect_ppo_with_one_minibatch(kCartPole, optimizer, AutoresetMode::kNextStep);
}

TEST(A2c, IsPpoWithOneEpochAndOneMinibatchWhereActionsAreABox) {
  expect_ppo_with_one_minibatch("shoal/Pendulum-v1", OptimizerKind::kRmsPropTf,
                                AutoresetMode::kNextStep);
}

TEST(A2c, IsPpoWithOneEpochAndOneMinibatchWhereEpisodesBeginInTheSameStep) {
  expect_ppo_with_one_minibatch(kCartPole, OptimizerKind::kRmsProp, AutoresetMode::kSameStep);
}

TEST(A2c, ThereIsNoNumberOfThatOthersHave) {
  const auto envs = serial_envs(kCartPole, 4);
  const auto a2c = learner_for(*envs, A2cConfig(), 1);
  a2c->begin(*envs);
  const IterationStats stats = a2c->iterate();
  EXPECT_TRUE(std::isnan(stats.approx_kl));
  EXPECT_TRUE(std::isnan(stats.clip_fraction));
  EXPECT_TRUE(std::isnan(stats.clip_range));
  EXPECT_EQ(stats.epochs, 1);
  EXPECT_EQ(stats.steps, 20);
}

// Batches of advantages that are normalised do not depend on the unit of the rewards.
TEST(A2c, NormalisesAdvantagesOnlyWhenTold) {
  auto losses = [](AdvantageNormalization normalization) {
    const auto envs = serial_envs(kCartPole, 8);
    A2cConfig config;
    config.num_steps = 20;
    config.advantage_normalization = normalization;
    const auto a2c = learner_for(*envs, config, 1);
    a2c->begin(*envs);
    return a2c->iterate();
  };
  const IterationStats plain = losses(A2cConfig().advantage_normalization);
  EXPECT_EQ(plain.policy_loss, losses(AdvantageNormalization::kNone).policy_loss);
  const IterationStats rollout = losses(AdvantageNormalization::kRollout);
  EXPECT_NE(plain.policy_loss, rollout.policy_loss);
  EXPECT_NEAR(rollout.policy_loss, losses(AdvantageNormalization::kMinibatch).policy_loss, 1e-6)
      << "a rollout is the one minibatch";
}

TEST(A2c, TheLearningRateFollowsTheSteps) {
  const auto envs = serial_envs(kCartPole, 4);
  A2cConfig config;
  config.total_steps = 40;
  config.learning_rate_schedule = Schedule::kLinear;
  const auto a2c = learner_for(*envs, config, 1);
  a2c->begin(*envs);
  EXPECT_DOUBLE_EQ(a2c->iterate().learning_rate, 7e-4);
  EXPECT_DOUBLE_EQ(a2c->iterate().learning_rate, 3.5e-4);
}

TEST(A2c, TheWeightOfTheEntropyFollowsTheSteps) {
  const auto envs = serial_envs(kCartPole, 4);
  A2cConfig config;
  config.total_steps = 40;
  config.entropy_coef = 0.5;
  config.entropy_coef_schedule = Schedule::kLinear;
  const auto a2c = learner_for(*envs, config, 1);
  a2c->begin(*envs);
  for (const double expected : {0.5, 0.25}) {
    const IterationStats stats = a2c->iterate();
    const double others = stats.policy_loss + config.value_coef * stats.value_loss;
    EXPECT_NEAR((others - stats.loss) / stats.entropy, expected, 1e-5);
  }
}

}  // namespace
}  // namespace shoal::learn
