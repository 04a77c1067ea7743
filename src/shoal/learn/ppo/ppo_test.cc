#include "shoal/learn/ppo/ppo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "shoal/collect/testing/scripted_vector_env.h"
#include "shoal/learn/run/evaluator.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using vector::AutoresetMode;
using vector::Backend;
using vector::VectorEnv;

constexpr const char* kCartPole = "shoal/CartPole-v1";

std::unique_ptr<VectorEnv> make(const char* id, int num_envs, Backend backend = Backend::kSerial,
                                int workers = 0, AutoresetMode mode = AutoresetMode::kNextStep) {
  return VectorEnv::create(
      id,
      {.num_envs = num_envs, .num_workers = workers, .backend = backend, .autoreset_mode = mode});
}

// Small enough for a test, with every part of the state in use.
PpoConfig small_config() {
  return {.total_steps = 100'000,
          .num_steps = 40,
          .gamma = 0.98,
          .gae_lambda = 0.8,
          .batch_size = 64,
          .epochs = 3,
          .learning_rate = 1e-3,
          .learning_rate_schedule = Schedule::kLinear,
          .clip_range_schedule = Schedule::kLinear,
          .normalize_obs = true,
          .normalize_reward = true};
}

Ppo learner(const VectorEnv& envs, const PpoConfig& config, std::uint64_t seed = 3) {
  return Ppo(envs.single_observation_space(), envs.single_action_space(), envs.num_envs(), config,
             seed);
}

double mean_return(Ppo& ppo, const char* id, int episodes, std::uint64_t seed) {
  const auto envs = make(id, 20);
  const Actor act = [&](auto obs, auto actions, std::uint64_t step) {
    ppo.act(obs, actions, true, step);
  };
  return evaluate(*envs, act, {.episodes = episodes, .seed = seed}).mean_return();
}

void expect_cartpole_is_learnt(AutoresetMode mode) {
  const auto envs = make(kCartPole, 8, Backend::kSerial, 0, mode);
  PpoConfig config{.total_steps = 60'000,
                   .num_steps = 32,
                   .gamma = 0.98,
                   .gae_lambda = 0.8,
                   .batch_size = 256,
                   .epochs = 20,
                   .learning_rate = 1e-3,
                   .learning_rate_schedule = Schedule::kLinear,
                   .clip_range_schedule = Schedule::kLinear};
  Ppo ppo = learner(*envs, config, 0);
  EXPECT_LT(mean_return(ppo, kCartPole, 20, 1), 300);
  ppo.begin(*envs);
  while (ppo.steps() < config.total_steps) ppo.iterate();
  EXPECT_GE(mean_return(ppo, kCartPole, 100, 1), 475);
}

TEST(Ppo, LearnsCartPole) { expect_cartpole_is_learnt(AutoresetMode::kNextStep); }

TEST(Ppo, TheNumberOfWorkersAndTheBackendDoNotChangeABit) {
  auto run = [](Backend backend, int workers) {
    const auto envs = make(kCartPole, 8, backend, workers);
    Ppo ppo = learner(*envs, small_config());
    ppo.begin(*envs);
    for (int k = 0; k < 4; ++k) ppo.iterate();
    return ppo.state();
  };
  const LearnerState serial = run(Backend::kSerial, 1);
  EXPECT_GT(serial.counters.at("episodes"), 0);
  for (const int workers : {1, 2, 4})
    EXPECT_EQ(run(Backend::kThread, workers), serial) << workers << " workers";
}

TEST(Ppo, SeedsMatter) {
  const auto envs = make(kCartPole, 4);
  Ppo one = learner(*envs, small_config(), 1);
  Ppo two = learner(*envs, small_config(), 2);
  EXPECT_NE(one.state().policy, two.state().policy);
}

TEST(Ppo, ContinuesBitForBitFromItsState) {
  const auto envs = make(kCartPole, 4);
  Ppo whole = learner(*envs, small_config());
  whole.begin(*envs);
  for (int k = 0; k < 3; ++k) whole.iterate();
  const LearnerState saved = whole.state();
  // begin() anew on both sides stands for environments that are brought back to where they were.
  whole.begin(*envs);
  for (int k = 0; k < 3; ++k) whole.iterate();

  const auto other_envs = make(kCartPole, 4);
  Ppo resumed = learner(*other_envs, small_config(), 99);
  resumed.load_state(saved);
  EXPECT_EQ(resumed.state(), saved);
  resumed.begin(*other_envs);
  for (int k = 0; k < 3; ++k) resumed.iterate();
  EXPECT_EQ(resumed.state(), whole.state());
}

TEST(Ppo, ContinuesBitForBitInTheMiddleOfEpisodes) {
  auto script = [] {
    return collect::ScriptedVectorEnv(
        {{{7, false}, {25, true}}, {{12, true}, {3, true}, {9, false}}}, AutoresetMode::kNextStep);
  };
  PpoConfig config = small_config();
  config.num_steps = 5;
  config.batch_size = 4;
  auto envs = script();
  Ppo whole = learner(envs, config);
  whole.begin(envs);
  for (int k = 0; k < 3; ++k) whole.iterate();
  const LearnerState saved = whole.state();
  for (int k = 0; k < 3; ++k) whole.iterate();

  auto other_envs = script();
  vector::Batch current = other_envs.reset(0);
  for (int k = 0; k < 15; ++k) current = other_envs.step();
  Ppo resumed = learner(other_envs, config, 99);
  resumed.load_state(saved);
  resumed.resume(other_envs, current);
  for (int k = 0; k < 3; ++k) resumed.iterate();
  EXPECT_EQ(resumed.state(), whole.state());
}

TEST(Ppo, StateOfAnotherNetworkIsRefusedAndChangesNothing) {
  const auto envs = make(kCartPole, 4);
  Ppo ppo = learner(*envs, small_config());
  const LearnerState before = ppo.state();
  PpoConfig wider = small_config();
  wider.policy_hidden = {32, 32};
  EXPECT_THROW(ppo.load_state(learner(*envs, wider).state()), InvalidArgument);
  LearnerState missing = learner(*envs, small_config(), 5).state();
  missing.normalizer.clear();
  EXPECT_THROW(ppo.load_state(missing), InvalidArgument);
  missing = learner(*envs, small_config(), 5).state();
  missing.counters.erase("steps");
  EXPECT_THROW(ppo.load_state(missing), InvalidArgument);
  EXPECT_THROW(ppo.load_state(learner(*make(kCartPole, 2), small_config()).state()),
               InvalidArgument);
  EXPECT_EQ(ppo.state(), before);
}

TEST(Ppo, ThePolicyAloneActsAsTheLearnerItCameFrom) {
  const auto envs = make(kCartPole, 4);
  Ppo trained = learner(*envs, small_config());
  trained.begin(*envs);
  for (int k = 0; k < 3; ++k) trained.iterate();
  const auto eval_envs = make(kCartPole, 7);
  Ppo loaded = learner(*eval_envs, small_config(), 8);
  loaded.load_policy(trained.state());
  EXPECT_EQ(mean_return(loaded, kCartPole, 20, 5), mean_return(trained, kCartPole, 20, 5));
}

TEST(Ppo, ActingChangesNoState) {
  const auto envs = make(kCartPole, 4);
  Ppo ppo = learner(*envs, small_config());
  const LearnerState before = ppo.state();
  mean_return(ppo, kCartPole, 5, 1);
  EXPECT_EQ(ppo.state(), before);
}

TEST(Ppo, ABoxOfActionsIsLearnt) {
  constexpr const char* kPendulum = "shoal/Pendulum-v1";
  const auto envs = make(kPendulum, 16);
  PpoConfig config{.total_steps = 100'000,
                   .num_steps = 256,
                   .gamma = 0.9,
                   .gae_lambda = 0.95,
                   .batch_size = 256,
                   .epochs = 10,
                   .learning_rate = 1e-3,
                   .learning_rate_schedule = Schedule::kLinear,
                   .normalize_reward = true};
  Ppo ppo = learner(*envs, config, 0);
  EXPECT_LT(mean_return(ppo, kPendulum, 20, 1), -900);
  ppo.begin(*envs);
  IterationStats stats;
  while (ppo.steps() < config.total_steps) stats = ppo.iterate();
  EXPECT_GT(mean_return(ppo, kPendulum, 100, 1), -300);
  ASSERT_TRUE(stats.action_std);
  EXPECT_LT(*stats.action_std, 0.9) << "a policy that knows what to do explores less";
  for (const auto& e : stats.finished) EXPECT_EQ(e.length, 200);
}

TEST(Ppo, TargetKlEndsTheUpdate) {
  const auto envs = make(kCartPole, 8);
  PpoConfig config = small_config();
  config.epochs = 50;
  config.learning_rate = 0.01;
  config.target_kl = 0.01;
  Ppo ppo = learner(*envs, config);
  ppo.begin(*envs);
  EXPECT_LT(ppo.iterate().epochs, 50);
}

TEST(Ppo, SchedulesFollowTheSteps) {
  const auto envs = make(kCartPole, 8);
  PpoConfig config = small_config();
  config.total_steps = 640;  // two iterations
  Ppo ppo = learner(*envs, config);
  ppo.begin(*envs);
  EXPECT_DOUBLE_EQ(ppo.iterate().learning_rate, 1e-3);
  const IterationStats second = ppo.iterate();
  EXPECT_DOUBLE_EQ(second.learning_rate, 0.5e-3);
  EXPECT_DOUBLE_EQ(second.clip_range, 0.1);
  EXPECT_EQ(second.steps, 640);
  EXPECT_EQ(second.iteration, 2);
}

TEST(Ppo, SameStepAutoresetLearnsToo) { expect_cartpole_is_learnt(AutoresetMode::kSameStep); }

TEST(Ppo, IteratingWithoutEnvironmentsThrows) {
  const auto envs = make(kCartPole, 2);
  Ppo ppo = learner(*envs, small_config());
  EXPECT_THROW(ppo.iterate(), InvalidState);
}

TEST(Ppo, OtherEnvironmentsThanItsOwnAreRefused) {
  const auto envs = make(kCartPole, 2);
  Ppo ppo = learner(*envs, small_config());
  EXPECT_THROW(ppo.begin(*make(kCartPole, 3)), InvalidArgument);
  EXPECT_THROW(ppo.begin(*make("shoal/Pendulum-v1", 2)), InvalidArgument);
}

}  // namespace
}  // namespace shoal::learn
