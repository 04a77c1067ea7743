// Short trajectories recorded from Gymnasium 1.4.0 (seed 42, 20 steps);
// tests/python/test_native_envs.py compares thousands of episodes with the installed Gymnasium
// itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "shoal/env/np_random.h"
#include "shoal/env/registry.h"
#include "shoal/env/testing/batch_arrays.h"

namespace shoal::env {
namespace {

struct Recording {
  std::string id;
  std::vector<double> actions;  // taken in turn
  std::vector<float> first;
  std::vector<float> last;
  double total;  // sum of the rewards
};

std::vector<Recording> recordings() {
  return {
      {"shoal/CartPole-v1",
       {1, 0},
       {0x1.c0d97ep-6, -0x1.9090f6p-8, 0x1.25c37p-5, 0x1.435e26p-6},
       {0x1.0007dp-4, -0x1.a6c832p-7, 0x1.1fff06p-6, 0x1.5b34f8p-3},
       20},
      {"shoal/CartPoleNoVel-v1",
       {1, 0},
       {0x1.c0d97ep-6, 0, 0x1.25c37p-5, 0},
       {0x1.0007dp-4, 0, 0x1.1fff06p-6, 0},
       20},
      {"shoal/Pendulum-v1",
       {1.5, -3.0},
       {-0x1.331a54p-3, 0x1.fa35fep-1, -0x1.f4b534p-4},
       {-0x1.7e990cp-2, -0x1.daeb72p-1, -0x1.6b3f7p+0},
       -0x1.ee8e00a5463b9p+6},
      {"shoal/Acrobot-v1",
       {2, 0},
       {0x1.ff3b4ep-1, 0x1.c0a002p-5, 0x1.fff634p-1, -0x1.908e68p-7, 0x1.25c37p-4, 0x1.435e26p-5},
       {0x1.ff390ap-1, 0x1.c3343ap-5, 0x1.ff938ep-1, 0x1.4d29f4p-5, 0x1.1dd0b8p-3, -0x1.89ab02p-2},
       -20},
      {"shoal/MountainCar-v0", {2, 0, 0}, {-0x1.c7e4dp-2, 0}, {-0x1.2b7a2p-1, -0x1.5c0e8ep-7}, -20},
      {"shoal/MountainCarContinuous-v0",
       {0.5, -1.5},
       {-0x1.c7e4dp-2, 0},
       {-0x1.2fc3f4p-1, -0x1.7d4e7p-7},
       -0x1.4p+1},
  };
}

class Classic : public testing::TestWithParam<Recording> {};

TEST_P(Classic, FollowsTheRecordingOfGymnasium) {
  const Recording& expected = GetParam();
  const auto batch = make_batch(expected.id, 1);
  BatchArrays arrays(*batch);
  const auto obs = arrays.obs(0, expected.first.size());
  batch->reset(0, 42);
  EXPECT_EQ(std::vector<float>(obs.begin(), obs.end()), expected.first);
  const bool discrete = batch->action_space().get_if<Discrete>() != nullptr;
  double total = 0;
  for (std::size_t step = 0; step < 20; ++step) {
    const double action = expected.actions[step % expected.actions.size()];
    if (discrete) {
      arrays.action(0) = static_cast<std::int64_t>(action);
    } else {
      arrays.action<float>(0) = static_cast<float>(action);
    }
    batch->step_range(0, 1);
    total += arrays.reward[0];
  }
  EXPECT_EQ(std::vector<float>(obs.begin(), obs.end()), expected.last);
  EXPECT_EQ(total, expected.total);
}

TEST_P(Classic, ReturnsToAStateThatWasRead) {
  const auto batch = make_batch(GetParam().id, 2);
  BatchArrays arrays(*batch);
  batch->reset(0, 1);
  batch->reset(1, 2);
  batch->step_range(0, 2);
  batch->set_state(1, batch->state(0));
  batch->step_range(0, 2);
  EXPECT_EQ(batch->state(0), batch->state(1));
  EXPECT_EQ(arrays.reward[0], arrays.reward[1]);
}

// Whole groups of environments may be stepped together: with the bits of one after the other.
TEST_P(Classic, AGroupStepsAsEachOfThemAlone) {
  constexpr int kCount = 37;
  const auto group = make_batch(GetParam().id, kCount, R"({"max_episode_steps": 40})");
  BatchArrays arrays(*group);
  std::vector<std::unique_ptr<BatchEnv>> alone;
  std::vector<std::unique_ptr<BatchArrays>> own;
  for (int i = 0; i < kCount; ++i) {
    alone.push_back(make_batch(GetParam().id, 1, R"({"max_episode_steps": 40})"));
    own.push_back(std::make_unique<BatchArrays>(*alone.back()));
    group->reset(i, i);
    alone.back()->reset(0, i);
  }
  const std::size_t width = GetParam().first.size();
  const bool discrete = group->action_space().get_if<Discrete>() != nullptr;
  NpRandom random(5);
  for (int step = 0; step < 80; ++step) {
    for (int i = 0; i < kCount; ++i) {
      if (discrete) {
        arrays.action(i) = own[static_cast<std::size_t>(i)]->action(0) = random.integers(0, 2);
      } else {
        arrays.action<float>(i) = own[static_cast<std::size_t>(i)]->action<float>(0) =
            static_cast<float>(random.uniform(-2, 2));
      }
    }
    group->step_range(1, kCount);
    for (int i = 1; i < kCount; ++i) {
      const auto at = static_cast<std::size_t>(i);
      alone[at]->step_range(0, 1);
      ASSERT_EQ(group->state(i), alone[at]->state(0)) << "environment " << i << ", step " << step;
      const auto together = arrays.obs(i, width), single = own[at]->obs(0, width);
      ASSERT_TRUE(std::equal(together.begin(), together.end(), single.begin()));
      ASSERT_EQ(arrays.reward[at], own[at]->reward[0]);
      ASSERT_EQ(arrays.terminated[at], own[at]->terminated[0]);
      ASSERT_EQ(arrays.truncated[at], own[at]->truncated[0]);
      if (arrays.truncated[at] == 0 && (step % 7 != 0 || arrays.terminated[at] == 0)) continue;
      group->reset(i, {});
      alone[at]->load(0, group->save(i));
    }
  }
}

/// The environments whose actions are numbers of a finite set: any other number is refused.
class ClassicDiscrete : public Classic {};

std::vector<Recording> discrete_recordings() {
  auto found = recordings();
  std::erase_if(found, [](const Recording& recording) {
    return make_batch(recording.id, 1)->action_space().get_if<Discrete>() == nullptr;
  });
  return found;
}

TEST_P(ClassicDiscrete, ABadActionInAGroupIsNamedAndThoseBeforeItAreStepped) {
  const auto group = make_batch(GetParam().id, 20);
  BatchArrays arrays(*group);
  for (int i = 0; i < 20; ++i) group->reset(i, i);
  const auto before = group->state(4), after = group->state(6);
  arrays.action(5) = 9;
  EXPECT_THROW(group->step_range(0, 20), InvalidArgument);
  EXPECT_NE(group->state(4), before);
  EXPECT_EQ(group->state(6), after);
}

constexpr auto kName = [](const testing::TestParamInfo<Recording>& info) {
  std::string name = info.param.id.substr(6);
  std::erase(name, '-');
  return name;
};
INSTANTIATE_TEST_SUITE_P(All, Classic, testing::ValuesIn(recordings()), kName);
INSTANTIATE_TEST_SUITE_P(All, ClassicDiscrete, testing::ValuesIn(discrete_recordings()), kName);

double reward_of_two_steps_below_the_limit(std::string_view args, int which) {
  const auto batch = make_batch("shoal/CartPole-v1", 1, args);
  BatchArrays arrays(*batch);
  batch->reset(0, 0);
  const std::vector<double> fallen{0, 0, 1, 0};
  batch->set_state(0, fallen);
  for (int i = 0; i <= which; ++i) batch->step_range(0, 1);
  return arrays.reward[0];
}

TEST(CartPole, RewardsTheStepThatFailsOnceOnly) {
  EXPECT_EQ(reward_of_two_steps_below_the_limit("{}", 0), 1);
  EXPECT_EQ(reward_of_two_steps_below_the_limit("{}", 1), 0);
  EXPECT_EQ(reward_of_two_steps_below_the_limit(R"({"sutton_barto_reward": true})", 0), -1);
  EXPECT_EQ(reward_of_two_steps_below_the_limit(R"({"sutton_barto_reward": true})", 1), -1);
}

}  // namespace
}  // namespace shoal::env
