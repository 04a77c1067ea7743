// Snapshots and reset options through every backend; tests/python/test_vector_snapshots.py does
// more.
#include "shoal/vector/native/engine_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/vector/testing/backends.h"

namespace shoal::vector {
namespace {

using testing::Kind;

class EngineRequest : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<VectorEnv> make(const char* args = "{}", AutoresetMode mode = {}) {
    Options options;
    options.env_args = args;
    options.autoreset_mode = mode;
    return testing::make_native(GetParam(), "shoal/CartPole-v1", 5, 2, options);
  }
  static std::vector<testing::Recorded> run(VectorEnv& envs, int steps) {
    std::vector<testing::Recorded> batches;
    for (int t = 0; t < steps; ++t) {
      for (std::int64_t& action : envs.actions()[0].as<std::int64_t>()) action = t % 3 == 0;
      batches.push_back(testing::record(envs.step()));
    }
    return batches;
  }
  const std::vector<int> all_{0, 1, 2, 3, 4};
};

TEST_P(EngineRequest, ASnapshotIsComeBackToBitForBit) {
  for (const auto mode : {AutoresetMode::kNextStep, AutoresetMode::kSameStep}) {
    auto envs = make(R"({"frame_stack": 2, "max_episode_steps": 12})", mode);
    envs->reset(std::uint64_t{1});
    for (int round = 0; round < 4; ++round) {
      run(*envs, 5);
      const auto taken = snapshot(*envs, all_);
      const auto expected = run(*envs, 40);
      restore(*envs, all_, taken);
      EXPECT_EQ(run(*envs, 40), expected);
      restore(*envs, all_, taken);
    }
  }
}

TEST_P(EngineRequest, StatesMoveBetweenEnvironments) {
  auto envs = make();
  envs->reset(std::uint64_t{1});
  run(*envs, 3);
  const std::vector<int> from{0, 0}, to{4, 2};
  restore(*envs, to, snapshot(*envs, from));
  run(*envs, 50);
  const auto obs = envs->step().obs[0].as<float>();
  for (const std::size_t i : {0, 1, 2, 3}) {
    EXPECT_EQ(obs[i], obs[16 + i]);
    EXPECT_EQ(obs[i], obs[8 + i]);
  }
}

TEST_P(EngineRequest, WhatIsWrongIsRefused) {
  auto envs = make();
  envs->reset(std::uint64_t{1});
  const std::vector<int> wrong{5};
  EXPECT_THROW(snapshot(*envs, wrong), InvalidArgument);
  EXPECT_THROW(restore(*envs, all_, {}), InvalidArgument);
  const std::vector<int> first{0};
  const std::vector<std::vector<std::byte>> garbage{std::vector<std::byte>(40)};
  EXPECT_ANY_THROW(restore(*envs, first, garbage));
  run(*envs, 3);  // nothing is lost
  envs->step_async();
  EXPECT_THROW(snapshot(*envs, first), InvalidState);
  envs->wait();
}

TEST_P(EngineRequest, ResetOptionsAreForExplicitResetsUntilTheyAreChanged) {
  auto envs = make();
  set_reset_options(*envs, R"({"low": 0.15, "high": 0.16})");
  for (const float value : envs->reset(std::uint64_t{1}).obs[0].as<float>())
    EXPECT_GT(value, 0.14F);
  EXPECT_ANY_THROW(set_reset_options(*envs, R"({"lowest": 0.15})"));
  for (const float value : envs->reset(std::uint64_t{1}).obs[0].as<float>())
    EXPECT_GT(value, 0.14F);
  set_reset_options(*envs, "");
  for (const float value : envs->reset(std::uint64_t{1}).obs[0].as<float>())
    EXPECT_LT(value, 0.06F);
}

TEST_P(EngineRequest, EndsOfEpisodesHaveStatistics) {
  auto envs =
      make(R"({"episode_statistics": true, "max_episode_steps": 3, "reward_clip": [0, 0.5]})");
  envs->reset(std::uint64_t{1});
  for (int t = 0; t < 2; ++t) envs->step();
  const Batch batch = envs->step();
  EXPECT_THAT(batch.truncated, ::testing::Each(1));
  EXPECT_THAT(batch.reward, ::testing::Each(0.5));
  EXPECT_THAT(batch.episode_return, ::testing::Each(3.0));
  EXPECT_THAT(batch.episode_length, ::testing::Each(3));
}

INSTANTIATE_TEST_SUITE_P(Backends, EngineRequest,
                         ::testing::Values(Kind::kSerial, Kind::kThread, Kind::kProcessAsThreads,
                                           Kind::kForkserver),
                         [](const auto& info) { return testing::name(info.param); });

}  // namespace
}  // namespace shoal::vector
