#include "shoal/env/frame_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/env/registry.h"
#include "shoal/env/testing/batch_arrays.h"

namespace shoal::env {
namespace {

TEST(FrameStack, SpacesAreGymnasiumsBatchesOfThem) {
  EXPECT_EQ(stacked(float_box({-1, -2}, {1, 2}), 3).repr(),
            "Box([[-1. -2.] [-1. -2.] [-1. -2.]], [[1. 2.] [1. 2.] [1. 2.]], (3, 2), float32)");
  EXPECT_EQ(stacked(Box{{shm::DType::kU8, {4}}, {0}, {255}}, 2).repr(),
            "Box(0, 255, (2, 4), uint8)");
  EXPECT_EQ(stacked(Discrete{5}, 2), Space(MultiDiscrete{{5, 5}, {0, 0}, {2}, shm::DType::kI64}));
  EXPECT_EQ(leaves(stacked(MultiBinary{{3}}, 2))[0].spec.shape, (std::vector<std::int64_t>{2, 3}));
  const Space both = stacked(Tuple{{Discrete{2}, Dict{{{"a", float_box({0}, {1})}}}}}, 4);
  EXPECT_EQ(leaves(both)[1].path, "1/a");
  EXPECT_EQ(leaves(both)[1].spec.shape, (std::vector<std::int64_t>{4, 1}));
}

TEST(FrameStack, KeepsTheLastOnesAndAResetFillsAll) {
  const auto plain = make_batch("shoal/MountainCar-v0", 2);
  const auto stack = make_batch("shoal/MountainCar-v0", 2, R"({"frame_stack": 3})");
  BatchArrays one(*plain), many(*stack);
  for (int i : {0, 1}) {
    plain->reset(i, 5);
    stack->reset(i, 5);
  }
  const auto frame = [&](int age) {
    const auto row = many.obs(1, 6);
    return std::vector<float>{row[static_cast<std::size_t>(4 - 2 * age)],
                              row[static_cast<std::size_t>(5 - 2 * age)]};
  };
  const auto now = [&] { return std::vector<float>(one.obs(1, 2).begin(), one.obs(1, 2).end()); };
  const auto first = now();
  EXPECT_THAT((std::vector{frame(0), frame(1), frame(2)}), testing::Each(first));
  one.action(1) = many.action(1) = 2;
  plain->step_range(1, 2);
  stack->step_range(1, 2);
  EXPECT_EQ(frame(0), now());
  EXPECT_EQ(frame(1), first);
  EXPECT_EQ(frame(2), first);
  const auto row_zero = many.obs(0, 6);  // was not stepped
  EXPECT_EQ(row_zero[0], row_zero[4]);
}

TEST(FrameStack, WhatAReaderWritesOverItsRowIsNotInLaterOnes) {
  const auto one = make_batch("shoal/CartPole-v1", 1, R"({"frame_stack": 3})");
  const auto other = make_batch("shoal/CartPole-v1", 1, R"({"frame_stack": 3})");
  BatchArrays kept(*one), spoilt(*other);
  one->reset(0, 5);
  other->reset(0, 5);
  for (int t = 0; t < 4; ++t) {
    for (float& value : spoilt.obs(0, 12)) value = -100;
    one->step_range(0, 1);
    other->step_range(0, 1);
    EXPECT_THAT(spoilt.obs(0, 12), testing::ElementsAreArray(kept.obs(0, 12)));
  }
}

TEST(FrameStack, IsPartOfTheState) {
  const auto from = make_batch("shoal/CartPole-v1", 2, R"({"frame_stack": 3})");
  const auto to = make_batch("shoal/CartPole-v1", 1, R"({"frame_stack": 3})");
  BatchArrays a(*from), b(*to);
  from->reset(1, 3);
  to->reset(0, 4);
  for (int t = 0; t < 2; ++t) from->step_range(1, 2);
  const auto state = from->save(1);
  to->load(0, state);
  from->step_range(1, 2);
  to->step_range(0, 1);
  EXPECT_THAT(b.obs(0, 12), testing::ElementsAreArray(a.obs(1, 12)));
  EXPECT_THROW(to->load(0, std::span(state).first(9)), InvalidArgument);
}

TEST(FrameStack, OptionsThatMeanNothingAreRefused) {
  for (const char* const bad :
       {R"({"frame_stack": 0})", R"({"frame_stack": 2.5})", R"({"reward_clip": [1, 0]})",
        R"({"reward_clip": 3})", R"({"episode_statistics": 1})"}) {
    EXPECT_THROW(make_batch("shoal/CartPole-v1", 1, bad), InvalidArgument) << bad;
  }
}

TEST(BatchState, ContinuesWithTheSameBitsInAnotherBatch) {
  for (const EnvSpec& spec : registered_envs()) {
    const auto from = make_batch(spec.id, 2);
    const auto to = make_batch(spec.id, 1);
    BatchArrays a(*from), b(*to);
    from->reset(1, 3);
    to->reset(0, 4);
    from->step_range(1, 2);
    to->load(0, from->save(1));
    for (int episode = 0; episode < 2; ++episode) {
      from->step_range(1, 2);
      to->step_range(0, 1);
      EXPECT_EQ(from->state(1), to->state(0)) << spec.id;
      EXPECT_EQ(a.reward[1], b.reward[0]);
      from->reset(1, {});
      to->reset(0, {});
      EXPECT_EQ(from->state(1), to->state(0)) << spec.id;
    }
    EXPECT_THROW(to->load(0, {}), InvalidArgument);
  }
}

}  // namespace
}  // namespace shoal::env
