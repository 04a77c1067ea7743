#include "shoal/learn/ppo/ppo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "shoal/learn/config/option.h"
#include "shoal/learn/run/evaluator.h"
#include "shoal/learn/testing/learners.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using vector::AutoresetMode;
using vector::VectorEnv;

constexpr const char* kCartPole = "shoal/CartPole-v1";

PpoConfig configured(const char* options) {
  PpoConfig config;
  options_from_json(nlohmann::json::parse(options), config);
  return config;
}

// Small enough for a test, with every part of the state in use.
PpoConfig small_config() {
  return configured(R"({
      "total_steps": 100000, "num_steps": 40, "gamma": 0.98, "gae_lambda": 0.8, "batch_size": 64,
      "epochs": 3, "learning_rate": 1e-3, "learning_rate_schedule": "linear",
      "clip_range_schedule": "linear", "normalize_obs": true, "normalize_reward": true})");
}

double mean_return(Learner& ppo, const char* id, int episodes, std::uint64_t seed) {
  const auto envs = serial_envs(id, 20);
  return evaluate(*envs, ppo.acting(), true, {.episodes = episodes, .seed = seed}).mean_return();
}

void expect_cartpole_is_learnt(AutoresetMode mode) {
  const auto envs = serial_envs(kCartPole, 8, mode);
  const PpoConfig config = configured(R"({
      "total_steps": 60000, "num_steps": 32, "gamma": 0.98, "gae_lambda": 0.8, "batch_size": 256,
      "epochs": 20, "learning_rate": 1e-3, "learning_rate_schedule": "linear",
      "clip_range_schedule": "linear"})");
  const auto ppo = learner_for(*envs, config, 0);
  EXPECT_LT(mean_return(*ppo, kCartPole, 20, 1), 300);
  ppo->begin(*envs);
  while (ppo->steps() < config.total_steps) ppo->iterate();
  EXPECT_GE(mean_return(*ppo, kCartPole, 100, 1), 475);
}

TEST(Ppo, LearnsCartPole) { expect_cartpole_is_learnt(AutoresetMode::kNextStep); }

TEST(Ppo, ABoxOfActionsIsLearnt) {
  constexpr const char* kPendulum = "shoal/Pendulum-v1";
  const auto envs = serial_envs(kPendulum, 16);
  const PpoConfig config = configured(R"({
      "total_steps": 100000, "num_steps": 256, "gamma": 0.9, "gae_lambda": 0.95, "batch_size": 256,
      "epochs": 10, "learning_rate": 1e-3, "learning_rate_schedule": "linear",
      "normalize_reward": true})");
  const auto ppo = learner_for(*envs, config, 0);
  EXPECT_LT(mean_return(*ppo, kPendulum, 20, 1), -900);
  ppo->begin(*envs);
  IterationStats stats;
  while (ppo->steps() < config.total_steps) stats = ppo->iterate();
  EXPECT_GT(mean_return(*ppo, kPendulum, 100, 1), -300);
  ASSERT_TRUE(stats.action_std);
  EXPECT_LT(*stats.action_std, 0.9) << "a policy that knows what to do explores less";
  for (const auto& e : stats.finished) EXPECT_EQ(e.length, 200);
}

TEST(Ppo, TargetKlEndsTheUpdate) {
  const auto envs = serial_envs(kCartPole, 8);
  PpoConfig config = small_config();
  config.epochs = 50;
  config.learning_rate = 0.01;
  config.target_kl = 0.01;
  const auto ppo = learner_for(*envs, config, 3);
  ppo->begin(*envs);
  EXPECT_LT(ppo->iterate().epochs, 50);
}

TEST(Ppo, SchedulesFollowTheSteps) {
  const auto envs = serial_envs(kCartPole, 8);
  PpoConfig config = small_config();
  config.total_steps = 640;  // two iterations
  const auto ppo = learner_for(*envs, config, 3);
  ppo->begin(*envs);
  EXPECT_DOUBLE_EQ(ppo->iterate().learning_rate, 1e-3);
  const IterationStats second = ppo->iterate();
  EXPECT_DOUBLE_EQ(second.learning_rate, 0.5e-3);
  EXPECT_DOUBLE_EQ(second.clip_range, 0.1);
  EXPECT_EQ(second.steps, 640);
  EXPECT_EQ(second.iteration, 2);
}

TEST(Ppo, ValuesComputedAnewAreThoseOfTheRolloutWhileNothingIsLearnt) {
  for (const AutoresetMode mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
    const auto losses = [&](bool anew, double learning_rate) {
      const auto envs = serial_envs("shoal/Pendulum-v1", 4, mode);  // truncated after 200 steps
      PpoConfig config = small_config();
      config.num_steps = 150;
      config.learning_rate = learning_rate;
      config.recompute_advantages = anew;
      const auto ppo = learner_for(*envs, config, 3);
      ppo->begin(*envs);
      ppo->iterate();
      const IterationStats stats = ppo->iterate();
      return std::pair(stats.value_loss, stats.policy_loss);
    };
    EXPECT_EQ(losses(true, 0), losses(false, 0));
    EXPECT_NE(losses(true, 1e-3), losses(false, 1e-3));
  }
}

TEST(Ppo, NormalizedReturnsAreWhatTheValueHeadLearns) {
  const auto last_of = [](bool normalize) {
    const auto envs = serial_envs("shoal/Pendulum-v1", 8);
    PpoConfig config = small_config();
    config.normalize_reward = false;
    config.normalize_returns = normalize;
    const auto ppo = learner_for(*envs, config, 3);
    ppo->begin(*envs);
    IterationStats stats;
    for (int k = 0; k < 20; ++k) stats = ppo->iterate();
    return stats.value_loss;
  };
  EXPECT_GT(last_of(false), 100) << "returns of hundreds below 0";
  EXPECT_LT(last_of(true), 5);
}

std::unique_ptr<Learner> overlapping(const VectorEnv& envs, PpoConfig config) {
  config.overlap = true;
  return learner_for(envs, config, 3);
}

TEST(Ppo, WithOverlapTheFirstUpdateIsTheSameAndTheOthersAreOneUpdateBehind) {
  PpoConfig config = small_config();
  config.epochs = 1;
  config.batch_size = 100'000;  // the only ratio is that of now to when it acted
  const auto envs = serial_envs(kCartPole, 8);
  const auto other_envs = serial_envs(kCartPole, 8);
  const auto in_turns = learner_for(*envs, config, 3);
  const auto overlap = overlapping(*other_envs, config);
  in_turns->begin(*envs);
  overlap->begin(*other_envs);
  for (int k = 0; k < 5; ++k) {
    const IterationStats turn = in_turns->iterate();
    const IterationStats ahead = overlap->iterate();
    EXPECT_EQ(ahead.policy_lag, k == 0 ? 0 : 1);
    EXPECT_TRUE(std::isnan(turn.policy_lag));
    EXPECT_EQ(ahead.steps, turn.steps);
    EXPECT_EQ(overlap->state().policy == in_turns->state().policy, k == 0);
    EXPECT_NEAR(turn.approx_kl, 0, 1e-6);
    if (k > 0) {
      EXPECT_GT(ahead.approx_kl, 1e-5) << "the log-probabilities are those of acting";
    }
  }
}

TEST(Ppo, WithOverlapAPolicyThatStaysLearnsFromTheSameRollouts) {
  PpoConfig config = small_config();
  config.learning_rate = 0;
  const auto envs = serial_envs(kCartPole, 8);
  const auto other_envs = serial_envs(kCartPole, 8);
  const auto in_turns = learner_for(*envs, config, 3);
  const auto overlap = overlapping(*other_envs, config);
  in_turns->begin(*envs);
  overlap->begin(*other_envs);
  for (int k = 0; k < 5; ++k) {
    const IterationStats turn = in_turns->iterate();
    const IterationStats ahead = overlap->iterate();
    EXPECT_EQ(ahead.finished, turn.finished);
    EXPECT_EQ(ahead.loss, turn.loss);
    EXPECT_EQ(ahead.grad_norm, turn.grad_norm);
    EXPECT_EQ(ahead.explained_variance, turn.explained_variance);
  }
}

TEST(Ppo, OverlapIsForOneShard) {
  PpoConfig config = small_config();
  config.shards = 2;
  EXPECT_THROW(overlapping(*serial_envs(kCartPole, 4), config), InvalidArgument);
  config.shards = 1;
  EXPECT_NO_THROW(overlapping(*serial_envs(kCartPole, 4), config));
}

TEST(Ppo, AStateWithARolloutThatWaitsIsForOverlapAlone) {
  const PpoConfig config = small_config();
  const auto envs = serial_envs(kCartPole, 2);
  const auto in_turns = learner_for(*envs, config, 3);
  const auto overlap = overlapping(*envs, config);
  EXPECT_THROW(in_turns->load_state(overlap->state()), InvalidArgument);
  EXPECT_THROW(overlap->load_state(in_turns->state()), InvalidArgument);
}

TEST(Ppo, SameStepAutoresetLearnsToo) { expect_cartpole_is_learnt(AutoresetMode::kSameStep); }

TEST(Ppo, SettingsThatLookAtAllRowsAtOnceAreNotForShards) {
  const auto envs = serial_envs(kCartPole, 4);
  PpoConfig recomputed = small_config();
  recomputed.shards = 2;
  PpoConfig normalized = recomputed;
  recomputed.recompute_advantages = true;
  normalized.normalize_returns = true;
  EXPECT_THROW(learner_for(*envs, recomputed, 3), InvalidArgument);
  EXPECT_THROW(learner_for(*envs, normalized, 3), InvalidArgument);
}

}  // namespace
}  // namespace shoal::learn
