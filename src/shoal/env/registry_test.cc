#include "shoal/env/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "shoal/env/register_env.h"
#include "shoal/env/testing/batch_arrays.h"
#include "shoal/os/error.h"
#include "shoal/os/testing/message_of.h"

namespace shoal::env {
namespace {

using os::testing::message_of;
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

/// A PlainEnv that pays the chosen action.
struct Payer {
  using Action = std::int64_t;
  static constexpr int kActions = 3;
  static constexpr int kObservations = 1;
  static Space observation_space() { return Box{{shm::DType::kF32, {1}}, {0}, {1}}; }
  static Space action_space() { return Discrete{kActions}; }
  void reset(NpRandom& /*random*/, std::span<float, 1> obs) { obs[0] = 0; }
  Outcome step(Action action, std::span<float, 1> /*obs*/) {
    return {.reward = static_cast<double>(action)};
  }
  std::vector<double> state() const { return {}; }
  void set_state(std::span<const double> /*state*/) {}
};
SHOAL_REGISTER_ENV("test/Payer-v0", Payer, .max_episode_steps = 2);

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

TEST(Registry, MacroTakesPlainStructs) {
  const auto batch = make_batch("test/Payer-v0", 2);
  BatchArrays arrays(*batch);
  for (int i = 0; i < 2; ++i) batch->reset(i, {});
  arrays.action(1) = 2;
  batch->step_range(0, 2);
  batch->step_range(0, 2);
  EXPECT_EQ(arrays.reward, (std::vector<double>{0, 2}));
  EXPECT_EQ(arrays.truncated, (std::vector<std::uint8_t>{1, 1}));
  EXPECT_THAT(message_of<InvalidArgument>([] { make_batch("test/Payer-v0", 1, R"({"x": 1})"); }),
              HasSubstr("x"));
}

TEST(Registry, FactoriesThatReturnWhatWasNotAskedForAreRefused) {
  register_env({.id = "test/Null-v0"},
               [](int, int, const nlohmann::json&) { return std::unique_ptr<BatchEnv>(); });
  register_env({.id = "test/Few-v0"}, [](int count, int limit, const nlohmann::json&) {
    return std::make_unique<BatchOf<Payer>>(count - 1, limit, Payer{});
  });
  EXPECT_THAT(message_of<InvalidArgument>([] { make_batch("test/Null-v0", 2); }),
              HasSubstr("test/Null-v0: its factory returned nullptr"));
  EXPECT_THAT(message_of<InvalidArgument>([] { make_batch("test/Few-v0", 3); }),
              HasSubstr("test/Few-v0: its factory returned 2 environments, 3 were asked for"));
  EXPECT_THAT(
      message_of<InvalidArgument>([] { register_env({.id = "test/NoFactory-v0"}, nullptr); }),
      HasSubstr("no factory"));
}

TEST(Registry, ListsIdsInOrder) {
  const auto all = registered_envs();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](auto& a, auto& b) { return a.id < b.id; }));
  EXPECT_GE(all.size(), 7U);
}

TEST(Registry, UnknownIdNamesTheNearest) {
  EXPECT_THAT(message_of<InvalidArgument>([] { find_env("shoal/CartPol-v1"); }),
              AllOf(HasSubstr("\"shoal/CartPol-v1\""), HasSubstr("did you mean shoal/CartPole-v1"),
                    Not(HasSubstr("Acrobot"))));
  EXPECT_THAT(message_of<InvalidArgument>([] { find_env("cartpole-v1"); }),
              HasSubstr("did you mean shoal/CartPole-v1"));
  EXPECT_THAT(message_of<InvalidArgument>([] { find_env("shoal/MountainCar-v1"); }),
              HasSubstr("did you mean shoal/MountainCar-v0"));
}

TEST(Registry, IdLikeNoOtherListsAll) {
  EXPECT_THAT(
      message_of<InvalidArgument>([] { make_batch("Humanoid-v5", 1); }),
      AllOf(HasSubstr("there are"), HasSubstr("shoal/Acrobot-v1"), HasSubstr("shoal/Pendulum-v1")));
}

TEST(Registry, TakenOrMalformedIdIsRefused) {
  EXPECT_THAT(
      message_of<InvalidArgument>([] { register_env<Counter>({.id = "shoal/CartPole-v1"}); }),
      HasSubstr("already"));
  for (const char* const id : {"", "a b", "a/b/c", "/x", "x/"}) {
    EXPECT_THROW(register_env<Counter>({.id = id}), InvalidArgument) << id;
  }
  EXPECT_THROW(register_env<Counter>({.id = "test/Negative-v0", .max_episode_steps = -1}),
               InvalidArgument);
}

TEST(Registry, UnknownArgumentListsTheKnownOnes) {
  EXPECT_THAT(message_of<InvalidArgument>(
                  [] { make_batch("shoal/Pendulum-v1", 1, R"({"gravity": 9.81})"); }),
              AllOf(HasSubstr("shoal/Pendulum-v1"), HasSubstr("unknown argument gravity"),
                    HasSubstr("known: g")));
  EXPECT_THAT(message_of<InvalidArgument>([] { make_batch("test/Counter-v0", 1, R"({"x": 1})"); }),
              HasSubstr("x"));
}

TEST(Registry, ArgumentOfTheWrongTypeIsRefused) {
  EXPECT_THAT(
      message_of<InvalidArgument>([] { make_batch("shoal/Pendulum-v1", 1, R"({"g": "low"})"); }),
      HasSubstr("\"low\""));
  EXPECT_THAT(message_of<InvalidArgument>(
                  [] { make_batch("shoal/CartPole-v1", 1, R"({"sutton_barto_reward": 1})"); }),
              HasSubstr("true or false"));
  EXPECT_THAT(message_of<InvalidArgument>([] { make_batch("shoal/CartPole-v1", 1, "[1]"); }),
              HasSubstr("JSON object"));
  EXPECT_THAT(message_of<InvalidArgument>([] { make_batch("shoal/CartPole-v1", 1, "{"); }),
              HasSubstr("not JSON"));
  EXPECT_THAT(message_of<InvalidArgument>(
                  [] { make_batch("shoal/CartPole-v1", 1, R"({"max_episode_steps": 1e999})"); }),
              HasSubstr("not JSON"));
  EXPECT_THAT(message_of<InvalidArgument>([] { make_batch("shoal/CartPole-v1", 0); }),
              HasSubstr("at least one"));
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
  EXPECT_THAT(message_of<InvalidArgument>([&] { batch->step_range(0, 2); }),
              AllOf(HasSubstr("action 10"), HasSubstr("environment 1"), HasSubstr("Discrete(10)")));
  EXPECT_EQ(arrays.obs(0, 1)[0], 1);
}

TEST(BatchOfEnvs, ANewEnvironmentTakesThePlaceOfOneAlone) {
  const auto batch = make_batch("test/ShortCounter-v0", 2, R"({"frame_stack": 2})");
  BatchArrays arrays(*batch);
  for (int i = 0; i < 2; ++i) batch->reset(i, {});
  batch->step_range(0, 2);
  ASSERT_TRUE(batch->can_renew());
  batch->renew(1);
  EXPECT_EQ(batch->elapsed(0), 1);
  EXPECT_THROW(batch->step_range(1, 2), InvalidState);
  batch->reset(1, {});
  batch->step_range(0, 2);
  EXPECT_EQ(arrays.obs(0, 2)[1], 2);
  EXPECT_EQ(arrays.obs(1, 2)[1], 1);
  EXPECT_FALSE(make_batch("test/Payer-v0", 1)->can_renew());
  EXPECT_THROW(make_batch("test/Payer-v0", 1)->renew(0), InvalidState);
}

/// Takes anything of its action space.
struct Still : Env {
  explicit Still(Space actions) : Env(Discrete{2}, std::move(actions)) {}
  void reset(const Row& /*obs*/) override {}
  Outcome step(const Row& /*action*/, const Row& /*obs*/) override { return {}; }
};

/// What comes of an action whose leaf `leaf` is all `value`s.
template <class T>
std::string stepped(const Space& actions, T value, std::size_t leaf = 0) {
  const auto batch = batch_of_envs(2, 0, [&] { return std::make_unique<Still>(actions); });
  BatchArrays arrays(*batch);
  for (int i = 0; i < 2; ++i) batch->reset(i, {});
  for (T& element : arrays.rows(*batch).actions[leaf].template as<T>()) element = value;
  return message_of<InvalidArgument>([&] { batch->step_range(1, 2); });
}

TEST(BatchOfEnvs, ActionsOfEveryKindAndIntegerTypeAreChecked) {
  using shm::DType;
  const std::string none = "nothing was thrown";
  const MultiDiscrete multi{{3, 5}, {0, 1}, {2}, DType::kI64};
  EXPECT_EQ(stepped<std::int64_t>(multi, 2), none);
  EXPECT_THAT(stepped<std::int64_t>(multi, 3),
              HasSubstr("environment 1: action 3 (element 0) is not in MultiDiscrete([3 5]"));
  EXPECT_THAT(stepped<std::int64_t>(multi, 0), HasSubstr("action 0 (element 1)"));
  EXPECT_THAT(stepped<std::int64_t>(multi, std::numeric_limits<std::int64_t>::min()),
              HasSubstr("action -9223372036854775808"));
  EXPECT_EQ(stepped<std::int8_t>(MultiBinary{{2}}, 1), none);
  EXPECT_THAT(stepped<std::int8_t>(MultiBinary{{2}}, -1), HasSubstr("action -1 (element 0)"));
  const auto of_type = [&]<class T>(T inside) {
    const Space space = Discrete{3, 1, shm::dtype_of<T>()};
    EXPECT_EQ(stepped<T>(space, inside), none) << space.repr();
    EXPECT_THAT(stepped<T>(space, 0), HasSubstr("action 0 is not in")) << space.repr();
    EXPECT_THAT(stepped<T>(space, 4), HasSubstr("action 4 is not in")) << space.repr();
    EXPECT_THAT(stepped<T>(space, std::numeric_limits<T>::max()), HasSubstr("is not in"));
    EXPECT_THAT(stepped<T>(space, std::numeric_limits<T>::min()), HasSubstr("is not in"));
  };
  of_type.operator()<std::int8_t>(3);
  of_type.operator()<std::uint8_t>(3);
  of_type.operator()<std::int16_t>(3);
  of_type.operator()<std::uint16_t>(3);
  of_type.operator()<std::int32_t>(3);
  of_type.operator()<std::uint32_t>(3);
  of_type.operator()<std::int64_t>(3);
  of_type.operator()<std::uint64_t>(3);
  const Dict both{{{"push", Box{{DType::kF32, {1}}, {-1}, {1}}}, {"gear", Discrete{3}}}};
  EXPECT_THAT(stepped<std::int64_t>(both, 7, 1),
              HasSubstr("environment 1: gear: action 7 is not in Discrete(3)"));
}

std::string refusal_of(const Space& space) {
  return message_of<InvalidArgument>(
      [&] { batch_of_envs(1, 0, [&] { return std::make_unique<Still>(space); }); });
}

TEST(BatchOfEnvs, NumbersThatTheElementTypeDoesNotHoldAreRefused) {
  using shm::DType;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal_of(Discrete{3, 0, DType::kF32}), HasSubstr("float32, which has no integers"));
  EXPECT_THAT(refusal_of(Discrete{2, 0, DType::kBool}), HasSubstr("bool, which has no integers"));
  EXPECT_THAT(refusal_of(Discrete{1000, 0, DType::kU8}),
              HasSubstr("its action space: a space has 1000 values from 0 on, which uint8"));
  EXPECT_THAT(refusal_of(Discrete{100, 200, DType::kU8}), HasSubstr("from 200 on"));
  EXPECT_THAT(refusal_of(Discrete{3, -1, DType::kU64}), HasSubstr("from -1 on"));
  EXPECT_THAT(refusal_of(MultiDiscrete{{2, 300}, {0, 0}, {2}, DType::kI8}), HasSubstr("int8"));
  EXPECT_THAT(refusal_of(Box{{DType::kU8, {2}}, {-5}, {500}}),
              HasSubstr("a Box of uint8 has the low bound -5"));
  EXPECT_THAT(refusal_of(Box{{DType::kU8, {2}}, {0}, {500}}), HasSubstr("the high bound 500"));
  const std::string none = "nothing was thrown";
  EXPECT_EQ(refusal_of(Box{{DType::kI16, {2}}, {-kInfinity}, {kInfinity}}), none);
  EXPECT_EQ(refusal_of(Box{{DType::kBool, {2}}, {0}, {1}}), none);
  EXPECT_EQ(refusal_of(Box{{DType::kI64, {1}}, {-9223372036854775808.0}, {9223372036854775807.0}}),
            none);
  EXPECT_EQ(refusal_of(Discrete{127, 1, DType::kI8}), none);
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
  EXPECT_THAT(message_of<InvalidArgument>([&] { batch_of_envs(2, 0, one); }),
              HasSubstr("environment 1"));
}

}  // namespace
}  // namespace shoal::env
