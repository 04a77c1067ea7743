// What all learners from a replay keep to, with DQN as the one that is looked at.
#include "shoal/learn/off_policy/off_policy_learner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "shoal/collect/testing/scripted_vector_env.h"
#include "shoal/learn/dqn/dqn.h"
#include "shoal/learn/learner/state_arrays.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

using collect::ScriptedVectorEnv;
using testing::AllOf;
using testing::HasSubstr;
using vector::AutoresetMode;
using vector::VectorEnv;

std::unique_ptr<VectorEnv> cartpoles(int num_envs) {
  return VectorEnv::create("shoal/CartPole-v1",
                           {.num_envs = num_envs, .backend = vector::Backend::kSerial});
}

DqnConfig small() {
  DqnConfig config;
  config.num_steps = 40;
  config.buffer_size = 2000;
  config.learning_starts = 20;
  config.policy_hidden = {16};
  return config;
}

std::unique_ptr<Learner> learner(const VectorEnv& envs, const DqnConfig& config) {
  return make_learner(envs.single_observation_space(), envs.single_action_space(), envs.num_envs(),
                      config, 1);
}

std::int64_t updates_of(int num_envs, const DqnConfig& config) {
  const auto envs = cartpoles(num_envs);
  const auto dqn = learner(*envs, config);
  dqn->begin(*envs);
  while (dqn->steps() < 960) dqn->iterate();
  EXPECT_EQ(dqn->steps(), 960);
  return dqn->state().counters.at("updates").get<std::int64_t>();
}

TEST(OffPolicyLearner, UpdatesAreCountedByStepsWhateverTheNumberOfEnvironments) {
  DqnConfig config = small();
  config.learning_starts = 0;
  for (const int num_envs : {1, 4, 8}) {
    config.num_steps = 120 / num_envs;
    EXPECT_EQ(updates_of(num_envs, config), 240) << num_envs;
  }
  config.gradient_steps = 3;
  EXPECT_EQ(updates_of(8, config), 720);
  config.gradient_steps = -1;
  EXPECT_EQ(updates_of(8, config), 960) << "as many as steps";
  config.learning_starts = 480;
  EXPECT_EQ(updates_of(8, config), 480);
}

TEST(OffPolicyLearner, WhereAnIterationEndsChangesNothing) {
  auto run = [](int num_steps, int iterations) {
    DqnConfig config = small();
    config.num_steps = num_steps;
    config.normalize_obs = config.normalize_reward = config.prioritized = true;
    config.learning_rate_schedule = Schedule::kLinear;
    const auto envs = cartpoles(4);
    const auto dqn = learner(*envs, config);
    dqn->begin(*envs);
    for (int k = 0; k < iterations; ++k) dqn->iterate();
    LearnerState state = dqn->state();
    state.counters.erase("iteration");
    return state;
  };
  EXPECT_EQ(run(60, 2), run(10, 12));
}

TEST(OffPolicyLearner, AnIterationWithoutAnUpdateHasNoLosses) {
  DqnConfig config = small();
  config.learning_starts = 200;
  const auto envs = cartpoles(4);
  const auto dqn = learner(*envs, config);
  dqn->begin(*envs);
  const IterationStats first = dqn->iterate();
  EXPECT_FALSE(first.learned);
  EXPECT_TRUE(std::isnan(first.loss));
  EXPECT_EQ(first.updates, 0);
  const IterationStats second = dqn->iterate();
  EXPECT_TRUE(second.learned);
  EXPECT_GT(second.loss, 0);
  EXPECT_EQ(second.updates, (320 - 200) / 4);
  EXPECT_FALSE(std::isnan(second.q_value));
  EXPECT_GT(second.exploration, 0.9);
}

/// What a learner has kept of environment 0, row by row: observation, reward, flags.
struct Kept {
  float obs;
  float reward;
  unsigned flags;  // 1 terminated, 2 truncated, 4 valid
  bool operator==(const Kept&) const = default;
};

std::vector<Kept> kept_of(const LearnerState& state) {
  const auto heads = find_array<std::int64_t>(state.replay, "heads", 1);
  constexpr std::size_t kBytes = 4 + 4 + 4 + 1;  // observation, action, reward, flags
  const auto rows = find_array<std::uint8_t>(state.replay, "rows",
                                             static_cast<std::size_t>(heads[0] + 1) * kBytes);
  std::vector<Kept> kept;
  for (std::int64_t r = 0; r < heads[0]; ++r) {
    const std::uint8_t* row = rows.data() + static_cast<std::size_t>(r) * kBytes;
    Kept& one = kept.emplace_back();
    std::memcpy(&one.obs, row, 4);
    std::memcpy(&one.reward, row + 8, 4);
    one.flags = row[12];
  }
  return kept;
}

std::vector<Kept> rows_kept(AutoresetMode mode, int dies_at = -1) {
  ScriptedVectorEnv envs({{{3, true}, {2, false}}}, mode);
  if (dies_at >= 0) envs.die(dies_at, 0);
  DqnConfig config = small();
  config.num_steps = 8;
  config.learning_starts = 100;
  const auto dqn = learner(envs, config);
  dqn->begin(envs);
  dqn->iterate();
  return kept_of(dqn->state());
}

TEST(OffPolicyLearner, NextStepAutoresetsAreKeptAsTheyComeAndAreNoTransitions) {
  EXPECT_THAT(
      rows_kept(AutoresetMode::kNextStep),
      testing::ElementsAre(Kept{0, 1, 4}, Kept{1, 2, 4}, Kept{2, 3, 5}, Kept{3, 0, 0},
                           Kept{100, 1, 4}, Kept{101, 2, 6}, Kept{102, 0, 0}, Kept{200, 1, 4}));
}

TEST(OffPolicyLearner, SameStepAutoresetsGiveTheSameTransitions) {
  EXPECT_THAT(rows_kept(AutoresetMode::kSameStep),
              testing::ElementsAre(Kept{0, 1, 4}, Kept{1, 2, 4}, Kept{2, 3, 5}, Kept{3, 0, 0},
                                   Kept{100, 1, 4}, Kept{101, 2, 6}, Kept{102, 0, 0},
                                   Kept{200, 1, 4}, Kept{201, 2, 4}, Kept{202, 3, 4}));
}

TEST(OffPolicyLearner, TheRowOfADeadWorkerIsNoTransition) {
  const auto kept = rows_kept(AutoresetMode::kNextStep, 1);
  EXPECT_EQ(kept[0], (Kept{0, 1, 4}));
  EXPECT_EQ(kept[1].flags & 4U, 0U);
  EXPECT_EQ(kept[2].flags & 4U, 0U) << "its reset";
  EXPECT_EQ(kept[3].flags & 4U, 4U);
}

std::string refusal_of(const DqnConfig& config) {
  try {
    validate(config);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "it was taken";
}

TEST(OffPolicyLearner, ARunThatWouldEndBeforeItLearnsIsRefusedWithBothNumbers) {
  DqnConfig config = small();
  config.total_steps = 5000;
  config.learning_starts = 5000;
  EXPECT_THAT(refusal_of(config), AllOf(HasSubstr("learning_starts = 5000 and total_steps = 5000"),
                                        HasSubstr("lower learning_starts")));
  config.learning_starts = 4999;
  EXPECT_NO_THROW(validate(config));
}

TEST(OffPolicyLearner, SoIsOneWhoseFirstUpdateWouldComeAfterItsEnd) {
  DqnConfig config = small();
  config.total_steps = 300;
  config.learning_starts = 20;
  config.train_freq = 301;
  EXPECT_THAT(refusal_of(config), HasSubstr("train_freq = 301 and total_steps = 300"));
  config.train_freq = 300;
  EXPECT_NO_THROW(validate(config));
}

TEST(OffPolicyLearner, AReplayOfMoreRowsThanThereIsMemoryForAnywhereIsRefusedByItsOption) {
  DqnConfig config = small();
  config.buffer_size = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refusal_of(config), HasSubstr("buffer_size"));
}

TEST(OffPolicyLearner, AReplayTooSmallForItsWindowsIsRefusedWithTheLeast) {
  DqnConfig config = small();
  config.buffer_size = 15;
  config.n_step = 3;
  const auto envs = cartpoles(4);
  try {
    learner(*envs, config);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("take 16 or more"));
  }
  config.buffer_size = 16;
  EXPECT_NO_THROW(learner(*envs, config));
}

}  // namespace
}  // namespace shoal::learn
