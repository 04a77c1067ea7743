#include "shoal/learn/recurrent_ppo/recurrent_ppo.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "shoal/collect/testing/scripted_vector_env.h"
#include "shoal/learn/algorithm/presets.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/ppo/ppo.h"
#include "shoal/learn/recurrent_ppo/recurrent_ppo_update.h"
#include "shoal/learn/testing/learners.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using collect::Rollout;
using vector::AutoresetMode;
using vector::VectorEnv;

RecurrentPpoConfig small() {
  RecurrentPpoConfig config;
  config.num_steps = 64;
  config.lstm_size = 16;
  config.policy_hidden = config.value_hidden = {16};
  return config;
}

// With a learning rate of 0 the weights that learn are those that acted: every ratio of the update is 1, if
// its sequences begin where they must and with what was remembered there.
void expect_what_acted(VectorEnv& envs, int rollouts, int batch_size = 128) {
  RecurrentPpoConfig config = small();
  config.batch_size = batch_size;
  config.orthogonal_init = false;  // whose small head makes little of what is remembered
  config.learning_rate = 0;
  config.epochs = 2;
  const auto ppo = learner_for(envs, config, 3);
  ppo->begin(envs);
  for (int k = 0; k < rollouts; ++k) {
    const IterationStats stats = ppo->iterate();
    EXPECT_LT(std::abs(stats.approx_kl), 1e-6) << "rollout " << k;
    EXPECT_EQ(stats.clip_fraction, 0) << "rollout " << k;
  }
}

TEST(RecurrentPpo, UpdatesSeeWhatThePolicyThatActedSaw) {
  for (const AutoresetMode mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
    const auto envs = serial_envs("shoal/CartPole-v1", 6, mode);  // episodes end often
    expect_what_acted(*envs, 4);
  }
}

TEST(RecurrentPpo, UpdatesOfEpisodesLongerThanARolloutDoToo) {
  const auto envs = serial_envs("shoal/Pendulum-v1", 5);  // 200 steps an episode, 64 a rollout
  expect_what_acted(*envs, 6);
}

// As sb3-contrib, which cuts the rollout at every batch_size rows.
TEST(RecurrentPpo, ABatchSmallerThanARolloutCutsSequencesThatGoOnFromWhatWasRemembered) {
  for (const int batch_size : {2, 16, 24, 63}) {
    for (const AutoresetMode mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
      const auto envs = serial_envs("shoal/CartPole-v1", 3, mode);
      expect_what_acted(*envs, 3, batch_size);
    }
    const auto envs = serial_envs("shoal/Pendulum-v1", 2);
    expect_what_acted(*envs, 4, batch_size);
  }
}

TEST(RecurrentPpo, ThereAreAsManyMinibatchesAsTheBatchSizeSays) {
  const auto steps_with = [](int num_envs, int batch_size) {
    const auto envs = serial_envs("shoal/Pendulum-v1", num_envs);  // no episode ends in 64 steps
    RecurrentPpoConfig config = small();
    config.batch_size = batch_size;
    config.epochs = 3;
    const auto ppo = learner_for(*envs, config, 3);
    ppo->begin(*envs);
    ppo->iterate();
    return ppo->state().counters.at("optimizer_steps").get<int>();
  };
  EXPECT_EQ(steps_with(4, 64), 3 * 4);
  EXPECT_EQ(steps_with(4, 128), 3 * 2);
  EXPECT_EQ(steps_with(4, 16), 3 * 16);
  EXPECT_EQ(steps_with(1, 16), 3 * 4);
  EXPECT_EQ(steps_with(1, 2), 3 * 32);
}

// What a policy remembers of an episode's beginning, acting on the same observations.
TEST(RecurrentPpo, NothingIsRememberedAcrossEpisodes) {
  const auto envs = serial_envs("shoal/CartPole-v1", 1);
  RecurrentPpoConfig config = small();
  Agent agent(envs->single_observation_space(), envs->single_action_space(), config, 1,
              config.recurrence());
  EpisodeMemory memory(agent.memory_size());
  EXPECT_EQ(agent.memory_size(), 64U);
  const auto value = [&](std::uint8_t is_first) {
    std::vector<float> values(1), logp(1);
    std::vector<std::int64_t> action(1);
    agent.decide(envs->reset(7).obs, memory.of({&is_first, 1}), 0,
                 {reinterpret_cast<std::byte*>(action.data()), 1, {shm::DType::kI64, {}}}, logp,
                 values);
    return values[0];
  };
  const float first = value(1);
  EXPECT_NE(value(0), first);
  EXPECT_NE(value(0), first);
  EXPECT_EQ(value(1), first);
}

TEST(RecurrentPpo, StateOfAnotherWidthIsRefused) {
  const auto envs = serial_envs("shoal/CartPole-v1", 2);
  const auto learner = [&](int lstm_size) {
    RecurrentPpoConfig config = small();
    config.lstm_size = lstm_size;
    return learner_for(*envs, config, 3);
  };
  EXPECT_THROW(learner(16)->load_state(learner(32)->state()), InvalidArgument);
  LearnerState forgotten = learner(16)->state();
  std::erase_if(forgotten.episodes, [](const NamedArray& a) { return a.name == "memory"; });
  EXPECT_THROW(learner(16)->load_state(forgotten), InvalidArgument);
}

TEST(RecurrentPpo, LayersBeforeTheMemoryAreRefused) {
  RecurrentPpoConfig config = small();
  config.shared_hidden = true;
  EXPECT_THROW(validate(config), InvalidArgument);
  config = small();
  config.lstm_size = 0;
  EXPECT_THROW(validate(config), InvalidArgument);
}

TEST(RecurrentPpo, LearnsCartPoleWithoutVelocitiesByItsPreset) {
  EXPECT_GE(best_return_by_preset("CartPoleNoVel-v1", "recurrent_ppo", 475, 10'000, 10'000), 475);
}

}  // namespace
}  // namespace shoal::learn
