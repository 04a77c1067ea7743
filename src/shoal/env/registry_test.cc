#include "shoal/env/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shoal/env/register_env.h"
#include "shoal/env/testing/batch_arrays.h"
#include "shoal/os/error.h"

namespace shoal::env {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Counts its steps; the observation is the count, the reward the chosen action. Ends itself when 9
/// is chosen.
struct Counter : Env {
  Counter() : Env(Box{{shm::DType::kF32, {1}}, {0}, {1000}}, Discrete{10}) {}
  void reset(const Row& obs) override { obs.as<float>()[0] = count = 0; }
  Outcome step(const Row& action, const Row& obs) override {
    const std::int64_t chosen = action.as<std::int64_t>()[0];
    obs.as<float>()[0] = ++count;
    return {.reward = static_cast<double>(chosen), .terminated = chosen == 9};
  }
  float count = 0;
};
SHOAL_REGISTER_ENV("test/Counter-v0", Counter);
SHOAL_REGISTER_ENV("test/ShortCounter-v0", Counter, .max_episode_steps = 3,
                   .reward_threshold = 5.0);

std::string message_of(auto call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Registry, HoldsTheBuiltInEnvironmentsWithGymnasiumsLimits) {
  const std::vector<std::tuple<std::string, int, std::optional<double>>> expected = {
      {"shoal/CartPole-v1", 500, 475.0},     {"shoal/CartPoleNoVel-v1", 500, 475.0},
      {"shoal/Pendulum-v1", 200, {}},        {"shoal/Acrobot-v1", 500, -100.0},
      {"shoal/MountainCar-v0", 200, -110.0}, {"shoal/MountainCarContinuous-v0", 999, 90.0}};
  for (const auto& [id, steps, threshold] : expected) {
    EXPECT_TRUE(is_registered(id)) << id;
    EXPECT_EQ(find_env(id).max_episode_steps, steps) << id;
    EXPECT_EQ(find_env(id).reward_threshold, threshold) << id;
  }
}

TEST(Registry, MacroRegistersBeforeMainWithItsSpec) {
  EXPECT_EQ(find_env("test/Counter-v0").max_episode_steps, 0);
  EXPECT_EQ(find_env("test/ShortCounter-v0").max_episode_steps, 3);
  EXPECT_EQ(find_env("test/ShortCounter-v0").reward_threshold, 5.0);
}

TEST(Registry, ListsIdsInOrder) {
  const auto all = registered_envs();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](auto& a, auto& b) { return a.id < b.id; }));
  EXPECT_GE(all.size(), 7U);
}

TEST(Registry, UnknownIdNamesTheNearest) {
  EXPECT_THAT(message_of([] { find_env("shoal/CartPol-v1"); }),
              AllOf(HasSubstr("\"shoal/CartPol-v1\""), HasSubstr("did you mean shoal/CartPole-v1"),
                    Not(HasSubstr("Acrobot"))));
  EXPECT_THAT(message_of([] { find_env("cartpole-v1"); }),
              HasSubstr("did you mean shoal/CartPole-v1"));
  EXPECT_THAT(message_of([] { find_env("shoal/MountainCar-v1"); }),
              HasSubstr("did you mean shoal/MountainCar-v0"));
}

TEST(Registry, IdLikeNoOtherListsAll) {
  EXPECT_THAT(
      message_of([] { make_batch("Humanoid-v5", 1); }),
      AllOf(HasSubstr("there are"), HasSubstr("shoal/Acrobot-v1"), HasSubstr("shoal/Pendulum-v1")));
}

TEST(Registry, TakenOrMalformedIdIsRefused) {
  EXPECT_THAT(message_of([] { register_env<Counter>({.id = "shoal/CartPole-v1"}); }),
              HasSubstr("already"));
  for (const char* const id : {"", "a b", "a/b/c", "/x", "x/"}) {
    EXPECT_THROW(register_env<Counter>({.id = id}), InvalidArgument) << id;
  }
  EXPECT_THROW(register_env<Counter>({.id = "test/Negative-v0", .max_episode_steps = -1}),
               InvalidArgument);
}

TEST(Registry, UnknownArgumentListsTheKnownOnes) {
  EXPECT_THAT(message_of([] { make_batch("shoal/Pendulum-v1", 1, R"({"gravity": 9.81})"); }),
              AllOf(HasSubstr("shoal/Pendulum-v1"), HasSubstr("unknown argument gravity"),
                    HasSubstr("known: g")));
  EXPECT_THAT(message_of([] { make_batch("test/Counter-v0", 1, R"({"x": 1})"); }), HasSubstr("x"));
}

TEST(Registry, ArgumentOfTheWrongTypeIsRefused) {
  EXPECT_THAT(message_of([] { make_batch("shoal/Pendulum-v1", 1, R"({"g": "low"})"); }),
              HasSubstr("\"low\""));
  EXPECT_THAT(
      message_of([] { make_batch("shoal/CartPole-v1", 1, R"({"sutton_barto_reward": 1})"); }),
      HasSubstr("true or false"));
  EXPECT_THAT(message_of([] { make_batch("shoal/CartPole-v1", 1, "[1]"); }),
              HasSubstr("JSON object"));
  EXPECT_THAT(message_of([] { make_batch("shoal/CartPole-v1", 1, "{"); }), HasSubstr("not JSON"));
  EXPECT_THAT(
      message_of([] { make_batch("shoal/CartPole-v1", 1, R"({"max_episode_steps": 1e999})"); }),
      HasSubstr("not JSON"));
  EXPECT_THAT(message_of([] { make_batch("shoal/CartPole-v1", 0); }), HasSubstr("at least one"));
}

int episode_length(std::string_view id, std::string_view args, int at_most) {
  const auto batch = make_batch(id, 1, args);
  BatchArrays arrays(*batch);
  batch->reset(0, 0);
  for (int step = 1; step <= at_most; ++step) {
    batch->step_range(0, 1);
    if (arrays.truncated[0] == 1) return step;
  }
  return 0;
}

TEST(Registry, TimeLimitIsTheSpecsUnlessTheCallerSaysOtherwise) {
  EXPECT_EQ(episode_length("test/ShortCounter-v0", "{}", 100), 3);
  EXPECT_EQ(episode_length("test/ShortCounter-v0", R"({"max_episode_steps": 7})", 100), 7);
  EXPECT_EQ(episode_length("test/ShortCounter-v0", R"({"max_episode_steps": null})", 100), 3);
  EXPECT_EQ(episode_length("test/ShortCounter-v0", R"({"max_episode_steps": -1})", 100), 0);
  EXPECT_EQ(episode_length("test/Counter-v0", "{}", 100), 0);
  EXPECT_EQ(episode_length("shoal/Pendulum-v1", "{}", 1000), 200);
  EXPECT_EQ(episode_length("shoal/Pendulum-v1", R"({"max_episode_steps": 5, "g": 9.81})", 1000), 5);
  for (const char* const bad : {"0", "-2", "1.5", "\"3\"", "true"}) {
    const std::string args = std::string(R"({"max_episode_steps": )") + bad + "}";
    EXPECT_THROW(make_batch("test/Counter-v0", 1, args), InvalidArgument) << bad;
  }
}

TEST(BatchOfEnvs, StepsOnlyTheRangeAndKeepsCountersApart) {
  const auto batch = make_batch("test/ShortCounter-v0", 3);
  BatchArrays arrays(*batch);
  for (int i = 0; i < 3; ++i) batch->reset(i, {});
  arrays.action(1) = 4;
  arrays.action(2) = 9;
  batch->step_range(1, 3);
  EXPECT_EQ(arrays.obs(0, 1)[0], 0);
  EXPECT_EQ(arrays.obs(1, 1)[0], 1);
  EXPECT_EQ(arrays.reward, (std::vector<double>{0, 4, 9}));
  EXPECT_EQ(arrays.terminated, (std::vector<std::uint8_t>{0, 0, 1}));
  batch->step_range(0, 1);
  batch->step_range(1, 2);
  batch->step_range(1, 2);
  EXPECT_EQ(arrays.truncated, (std::vector<std::uint8_t>{0, 1, 0}));
  batch->reset(1, {});
  EXPECT_EQ(arrays.obs(1, 1)[0], 0);
  EXPECT_EQ(arrays.truncated[1], 0);
  EXPECT_EQ(arrays.reward[1], 0);
}

TEST(BatchOfEnvs, BadActionNamesTheEnvironment) {
  const auto batch = make_batch("test/Counter-v0", 2);
  BatchArrays arrays(*batch);
  for (int i = 0; i < 2; ++i) batch->reset(i, {});
  arrays.action(1) = 10;
  EXPECT_THAT(message_of([&] { batch->step_range(0, 2); }),
              AllOf(HasSubstr("action 10"), HasSubstr("environment 1"), HasSubstr("Discrete(10)")));
  EXPECT_EQ(arrays.obs(0, 1)[0], 1);
}

TEST(BatchOfEnvs, StepBeforeResetAndStateAreRefused) {
  const auto batch = make_batch("test/Counter-v0", 1);
  BatchArrays arrays(*batch);
  EXPECT_THROW(batch->step_range(0, 1), InvalidState);
  EXPECT_THROW(batch->state(0), InvalidState);
  EXPECT_THROW(batch->set_state(0, {}), InvalidState);
}

TEST(BatchOfEnvs, EnvironmentsOfDifferentSpacesAreRefused) {
  struct Other : Counter {};
  struct Wide : Env {
    Wide() : Env(Box{{shm::DType::kF32, {2}}, {0}, {1}}, Discrete{10}) {}
    void reset(const Row&) override {}
    Outcome step(const Row&, const Row&) override { return {}; }
  };
  int made = 0;
  const auto one = [&made]() -> std::unique_ptr<Env> {
    if (made++ == 0) return std::make_unique<Other>();
    return std::make_unique<Wide>();
  };
  EXPECT_THAT(message_of([&] { batch_of_envs(2, 0, one); }), HasSubstr("environment 1"));
}

}  // namespace
}  // namespace shoal::env
