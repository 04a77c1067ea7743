// What IMPALA and APPO share: the actor beside the learner. (Bits and states: learners_test.cc.)
#include "shoal/learn/asynchronous/asynchronous_learner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "shoal/collect/testing/scripted_vector_env.h"
#include "shoal/learn/impala/impala.h"
#include "shoal/learn/ppo/ppo.h"
#include "shoal/os/error.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {
namespace {

using collect::ScriptedVectorEnv;
using vector::AutoresetMode;

/// Two environments whose episodes of CartPole's kind never end, which fail in a step if told, and
/// whose steps anybody may count.
class WatchedEnvs final : public vector::VectorEnv {
 public:
  int num_envs() const noexcept override { return envs_.num_envs(); }
  int num_workers() const noexcept override { return 1; }
  const env::Space& single_observation_space() const noexcept override {
    return envs_.single_observation_space();
  }
  const env::Space& single_action_space() const noexcept override {
    return envs_.single_action_space();
  }
  AutoresetMode autoreset_mode() const noexcept override { return envs_.autoreset_mode(); }
  std::span<const shm::TensorView> actions() const noexcept override { return envs_.actions(); }
  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask) override {
    envs_.reset_async(seeds, mask);
  }
  void step_async() override {
    if (++steps == fail_at) throw InvalidState("the environments have failed");
    envs_.step_async();
  }
  vector::Batch wait(std::optional<std::chrono::nanoseconds> timeout) override {
    return envs_.wait(timeout);
  }
  void close() noexcept override {}

  std::atomic<int> steps = 0;
  std::atomic<int> fail_at = -1;

 private:
  ScriptedVectorEnv envs_{{{}, {}}, AutoresetMode::kNextStep};
};

ImpalaConfig small(int max_lag, bool deterministic) {
  ImpalaConfig config;
  config.num_steps = 5;
  config.policy_hidden = config.value_hidden = {4};
  config.max_lag = max_lag;
  config.deterministic = deterministic;
  return config;
}

std::unique_ptr<Learner> learner(const vector::VectorEnv& envs, const ImpalaConfig& config) {
  return make_learner(envs.single_observation_space(), envs.single_action_space(), envs.num_envs(),
                      config, 1);
}

TEST(AsynchronousLearner, DeterministicLagGrowsToItsBoundAndStays) {
  for (const int max_lag : {1, 3}) {
    WatchedEnvs envs;
    const auto subject = learner(envs, small(max_lag, true));
    subject->begin(envs);
    for (int k = 0; k < 8; ++k) {
      EXPECT_EQ(subject->iterate().policy_lag, std::min(k, max_lag)) << "iteration " << k + 1;
      EXPECT_EQ(envs.steps, 5 * (k + 1 + max_lag)) << "the actor is done when the update is";
    }
  }
}

TEST(AsynchronousLearner, LagNeverExceedsItsBoundAndTheActorIsNeverFurtherAhead) {
  for (const int max_lag : {1, 2, 5}) {
    WatchedEnvs envs;
    const auto subject = learner(envs, small(max_lag, false));
    subject->begin(envs);
    for (int k = 1; k <= 300; ++k) {
      const double lag = subject->iterate().policy_lag;
      EXPECT_GE(lag, 0);
      EXPECT_LE(lag, max_lag);
      EXPECT_LE(envs.steps, 5 * (k + max_lag + 1));
    }
  }
}

TEST(AsynchronousLearner, ALearnerThatIsNotAskedIsNotWaitedForBeyondTheBound) {
  WatchedEnvs envs;
  const auto subject = learner(envs, small(2, false));
  subject->begin(envs);
  subject->iterate();
  while (envs.steps < 5 * 4) std::this_thread::yield();  // one was learned from, three more
  subject->rest();
  EXPECT_EQ(envs.steps, 5 * 4);
  EXPECT_LE(subject->iterate().policy_lag, 1) << "begun before the first was learned from";
}

TEST(AsynchronousLearner, NothingStepsTheEnvironmentsWhileItRests) {
  WatchedEnvs envs;
  const auto subject = learner(envs, small(5, false));
  subject->begin(envs);
  for (int k = 0; k < 50; ++k) {
    subject->iterate();
    subject->rest();
    const int steps = envs.steps;
    EXPECT_EQ(steps % 5, 0) << "whole rollouts";
    const LearnerState state = subject->state();
    EXPECT_EQ(state.counters.at("waiting_rollouts").size(),
              static_cast<std::size_t>(steps / 5 - (k + 1)));
    EXPECT_EQ(envs.steps, steps);
  }
}

TEST(AsynchronousLearner, ALoadedLearnerLearnsFromWhatWaited) {
  WatchedEnvs envs;
  const auto subject = learner(envs, small(4, true));
  subject->begin(envs);
  subject->iterate();
  const LearnerState saved = subject->state();
  EXPECT_EQ(saved.counters.at("waiting_rollouts").size(), 4U);

  WatchedEnvs others;
  const auto loaded = learner(others, small(4, true));
  loaded->load_state(saved);
  EXPECT_EQ(loaded->state(), saved);
  loaded->begin(others);
  const IterationStats next = loaded->iterate();
  EXPECT_EQ(next.policy_lag, 1) << "collected before it was saved";
  EXPECT_EQ(next.steps, 20);
  EXPECT_EQ(others.steps, 5) << "one rollout more is ahead";
}

// recompute_advantages values the rollout that waited anew, but for the ends that it lacks.
TEST(AsynchronousLearner, ARolloutThatWaitedIsStillKnownToLackTheEndsOfItsEpisodes) {
  PpoConfig config;
  config.num_steps = 6;
  config.batch_size = 4;
  config.epochs = 3;
  config.policy_hidden = config.value_hidden = {4};
  config.recompute_advantages = config.overlap = config.normalize_obs = true;
  const auto short_episodes = [] {
    const std::vector<collect::ScriptedEpisode> script(9, {.length = 2, .terminated = false});
    return ScriptedVectorEnv({script, script}, AutoresetMode::kSameStep);
  };
  const auto its_learner = [&](const vector::VectorEnv& envs) {
    return make_learner(envs.single_observation_space(), envs.single_action_space(), 2, config, 1);
  };
  auto envs = short_episodes();
  const auto whole = its_learner(envs);
  whole->begin(envs);
  whole->iterate();
  const LearnerState saved = whole->state();
  ASSERT_EQ(saved.counters.at("waiting_rollouts").size(), 1U);

  auto others = short_episodes();
  const auto loaded = its_learner(others);
  loaded->load_state(saved);
  loaded->begin(others);
  whole->iterate();
  loaded->iterate();  // with what waited
  EXPECT_EQ(loaded->state().policy, whole->state().policy);
}

TEST(AsynchronousLearner, NothingIsCollectedBeyondTheEndOfTheRun) {
  WatchedEnvs envs;
  ImpalaConfig config = small(5, false);
  config.total_steps = 35;  // four rollouts of ten
  const auto subject = learner(envs, config);
  subject->begin(envs);
  while (subject->steps() < config.total_steps) subject->iterate();
  subject->rest();
  EXPECT_EQ(subject->steps(), 40);
  EXPECT_EQ(envs.steps, 20);
}

TEST(AsynchronousLearner, WhatTheEnvironmentsThrowEndsAnIterationAndABeginGoesOn) {
  for (const bool deterministic : {false, true}) {
    WatchedEnvs envs;
    const auto subject = learner(envs, small(1, deterministic));
    subject->begin(envs);
    envs.fail_at = 13;  // in the third rollout
    int learned = 0;
    EXPECT_THROW(
        while (learned < 10) {
          subject->iterate();
          ++learned;
        },
        InvalidState);
    EXPECT_LE(learned, 2);
    EXPECT_EQ(subject->iteration(), learned);
    EXPECT_THROW(subject->iterate(), InvalidState) << "until begin()";
    subject->begin(envs);
    for (int k = 0; k < 3; ++k) subject->iterate();
    EXPECT_EQ(subject->iteration(), learned + 3);
  }
}

TEST(AsynchronousLearner, EndsWhileItsActorCollects) {
  for (int k = 0; k < 20; ++k) {
    WatchedEnvs envs;
    const auto subject = learner(envs, small(100, false));
    subject->begin(envs);
    subject->iterate();
  }
}

}  // namespace
}  // namespace shoal::learn
