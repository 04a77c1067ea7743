#include "shoal/env/batch_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/env/batch_of.h"
#include "shoal/env/registry.h"
#include "shoal/env/testing/batch_arrays.h"
#include "shoal/os/error.h"

namespace shoal::env {
namespace {

using ::testing::HasSubstr;

/// Walks from 0 by -1 or +1 and ends at 3; begins at a random place in [0, 1).
struct Walk {
  using Action = std::int64_t;
  static constexpr int kActions = 2;
  static constexpr int kObservations = 1;
  static Space observation_space() { return Box{{shm::DType::kF32, {1}}, {-100}, {100}}; }
  static Space action_space() { return Discrete{kActions}; }
  void reset(NpRandom& random, std::span<float, 1> obs) {
    at = random.random();
    obs[0] = static_cast<float>(at);
  }
  Outcome step(Action action, std::span<float, 1> obs) {
    at += action == 1 ? 1 : -1;
    obs[0] = static_cast<float>(at);
    return {.reward = at, .terminated = at >= 3};
  }
  std::vector<double> state() const { return {at}; }
  void set_state(std::span<const double> state) { at = state[0]; }
  double at = 0;
};

TEST(BatchOf, SeedsDecideAndStreamsGoOn) {
  BatchOf<Walk> batch(3, 0, Walk{});
  BatchArrays arrays(batch);
  batch.reset(0, 5);
  batch.reset(1, 5);
  batch.reset(2, 6);
  EXPECT_EQ(batch.state(0), batch.state(1));
  EXPECT_NE(batch.state(0), batch.state(2));
  EXPECT_EQ(batch.state(0)[0], NpRandom(5).random());
  const auto first = batch.state(0);
  batch.reset(0, {});
  EXPECT_NE(batch.state(0), first);
  batch.reset(1, {});
  EXPECT_EQ(batch.state(0), batch.state(1));
}

TEST(BatchOf, TruncatesAtTheLimitAndTerminatesByItself) {
  BatchOf<Walk> batch(2, 3, Walk{});
  BatchArrays arrays(batch);
  for (int i = 0; i < 2; ++i) batch.reset(i, 0);
  arrays.action(1) = 1;
  for (int step = 1; step <= 2; ++step) {
    batch.step_range(0, 2);
    EXPECT_EQ(arrays.truncated, (std::vector<std::uint8_t>{0, 0})) << step;
    EXPECT_EQ(arrays.terminated, (std::vector<std::uint8_t>{0, 0})) << step;
  }
  batch.step_range(0, 2);
  EXPECT_EQ(arrays.truncated, (std::vector<std::uint8_t>{1, 1}));
  EXPECT_EQ(arrays.terminated, (std::vector<std::uint8_t>{0, 1}));
  EXPECT_EQ(arrays.reward[1], batch.state(1)[0]);
}

TEST(BatchOf, BadActionNamesTheEnvironmentAndStepsThoseBefore) {
  BatchOf<Walk> batch(2, 0, Walk{});
  BatchArrays arrays(batch);
  for (int i = 0; i < 2; ++i) batch.reset(i, 0);
  const double before = batch.state(0)[0];
  for (const std::int64_t bad : {std::int64_t{2}, std::int64_t{-1}}) {
    arrays.action(1) = bad;
    try {
      batch.step_range(0, 2);
      ADD_FAILURE() << "action " << bad << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("environment 1"));
    }
  }
  EXPECT_EQ(batch.state(0)[0], before - 2);
}

TEST(BatchOf, StepBeforeResetIsRefused) {
  BatchOf<Walk> batch(1, 0, Walk{});
  BatchArrays arrays(batch);
  EXPECT_THROW(batch.step_range(0, 1), InvalidState);
}

TEST(BatchOf, SetStateTakesExactlyTheStatesNumbers) {
  BatchOf<Walk> batch(1, 0, Walk{});
  BatchArrays arrays(batch);
  const std::vector<double> two(2);
  EXPECT_THROW(batch.set_state(0, two), InvalidArgument);
  const std::vector<double> one{2.5};
  batch.set_state(0, one);
  arrays.action(0) = 1;
  batch.step_range(0, 1);
  EXPECT_EQ(arrays.obs(0, 1)[0], 3.5F);
  EXPECT_EQ(arrays.terminated[0], 1);
}

struct SaysTwoWritesOne : Walk {
  static Space observation_space() { return float_box({-9, -9}, {9, 9}); }
};
struct SaysBytes : Walk {
  static Space observation_space() { return Box{{shm::DType::kU8, {1}}, {0}, {9}}; }
};
struct MoreActions : Walk {
  static Space action_space() { return Discrete{5}; }
};
struct LaterActions : Walk {
  static Space action_space() { return Discrete{2, 1}; }
};
struct SmallActions : Walk {
  static Space action_space() { return Discrete{2, 0, shm::DType::kI32}; }
};
struct NarrowPush : Walk {
  using Action = std::span<const float, 2>;
  static Space action_space() { return float_box({-1}, {1}); }
  Outcome step(Action /*push*/, std::span<float, 1> /*obs*/) { return {}; }
};

template <class T>
std::string refusal_of() {
  try {
    BatchOf<T>(1, 0, T{});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(BatchOf, SpacesThatItsCodeDoesNotHaveAreRefused) {
  EXPECT_THAT(
      refusal_of<SaysTwoWritesOne>(),
      HasSubstr("observation space is Box(-9.0, 9.0, (2,), float32), and kObservations is 1"));
  EXPECT_THAT(refusal_of<SaysBytes>(), HasSubstr("Box(0, 9, (1,), uint8), and kObservations is 1"));
  EXPECT_THAT(refusal_of<MoreActions>(), HasSubstr("Discrete(5), and kActions is 2"));
  EXPECT_THAT(refusal_of<LaterActions>(), HasSubstr("Discrete(2, start=1), and kActions is 2"));
  EXPECT_THAT(refusal_of<SmallActions>(), HasSubstr("it must be Discrete(2)"));
  EXPECT_THAT(refusal_of<NarrowPush>(), HasSubstr("the extent of Action is 2"));
}

TEST(BatchEnv, AttachRefusesArraysThatDoNotFit) {
  BatchOf<Walk> batch(4, 0, Walk{});
  BatchArrays arrays(batch);
  const auto refuses = [&](auto spoil) {
    BatchRows rows = arrays.rows(batch);
    spoil(rows);
    EXPECT_THROW(batch.attach(rows), InvalidArgument);
  };
  refuses([](BatchRows& rows) { rows.obs.clear(); });
  refuses([](BatchRows& rows) { rows.obs[0].rows = 3; });
  refuses([](BatchRows& rows) { rows.obs[0].row.dtype = shm::DType::kF64; });
  refuses([](BatchRows& rows) { rows.actions[0].row.shape = {1}; });
  refuses([](BatchRows& rows) { rows.actions[0].data = nullptr; });
  refuses([](BatchRows& rows) { rows.reward = rows.reward.subspan(1); });
  refuses([](BatchRows& rows) { rows.truncated = {}; });
}

TEST(BatchEnv, AttachedAgainWritesTheNewArrays) {
  BatchOf<Walk> batch(1, 0, Walk{});
  BatchArrays first(batch);
  batch.reset(0, 0);
  BatchArrays second(batch);
  batch.step_range(0, 1);
  EXPECT_NE(second.obs(0, 1)[0], 0);
  EXPECT_EQ(first.reward[0], 0);
  EXPECT_NE(second.reward[0], 0);
}

}  // namespace
}  // namespace shoal::env
