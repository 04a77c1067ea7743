// tests/python/test_segmented_world.py compares whole episodes with the twin in
// examples/segmentation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "shoal/env/registry.h"
#include "shoal/env/segmented/scene.h"
#include "shoal/env/segmented/world.h"
#include "shoal/env/testing/batch_arrays.h"
#include "shoal/os/testing/message_of.h"

namespace shoal::env::segmented {
namespace {

using os::testing::message_of;
using ::testing::HasSubstr;

constexpr std::size_t kPixels = std::size_t{kSide} * kSide;
constexpr const char* kId = "shoal/SegmentedWorld-v0";

int pixels_of(std::span<const std::uint8_t> mask, Kind kind) {
  return static_cast<int>(std::ranges::count(mask, static_cast<std::uint8_t>(kind)));
}

TEST(SegmentedWorld, MaskShowsEveryThingWhole) {
  const auto batch = make_batch(kId, 1, R"({"observation": "mask"})");
  BatchArrays arrays(*batch);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    batch->reset(0, seed);
    const auto mask = arrays.obs<std::uint8_t>(0, kPixels);
    EXPECT_EQ(pixels_of(mask, Kind::kRock), World::kRocks * 11 * 11);
    EXPECT_EQ(pixels_of(mask, Kind::kFruit), World::kFruits * 113);
    EXPECT_EQ(pixels_of(mask, Kind::kThorn), World::kThorns * 85);
    EXPECT_EQ(pixels_of(mask, Kind::kAgent), 113);
  }
}

TEST(SegmentedWorld, RewardsAreFruitAndThornsThatAreTouched) {
  World world;
  NpRandom random(7);
  world.reset(random);
  std::vector<double> state = world.state();
  const auto put_agent_left_of = [&](int object) {
    const Thing& thing = world.objects()[static_cast<std::size_t>(object)];
    state[1] = thing.x > kSide / 2 ? thing.x - 2 * World::kSpeed : thing.x + 2 * World::kSpeed;
    state[2] = thing.y;
    world.set_state(state);
    return thing.x > world.agent().x ? 3 : 2;  // the way to it
  };
  bool regrown = false;

  const Thing fruit = world.objects()[World::kRocks];
  const Outcome fed = world.step(put_agent_left_of(World::kRocks), random, regrown);
  EXPECT_GE(fed.reward, 0);
  const Thing& again = world.objects()[World::kRocks];
  EXPECT_TRUE(regrown);
  EXPECT_TRUE(fruit.x != again.x || fruit.y != again.y);

  state = world.state();
  const Outcome hurt = world.step(put_agent_left_of(World::kObjects - 1), random, regrown);
  EXPECT_TRUE(hurt.terminated);
  EXPECT_LE(hurt.reward, 0);
}

TEST(SegmentedWorld, NothingGrowsWithinReachOrOutOfThePicture) {
  World world;
  NpRandom random(1), player(2);
  const auto check = [&] {
    for (const Thing& thing : world.objects()) {
      ASSERT_GE(std::min(thing.x, thing.y), kRadius);
      ASSERT_LE(std::max(thing.x, thing.y), kSide - 1 - kRadius);
    }
  };
  for (int episode = 0; episode < 100; ++episode) {
    world.reset(random);
    check();
    for (int step = 0; step < 100; ++step) {
      bool regrown = false;
      const Outcome outcome = world.step(player.integers(0, World::kActions), random, regrown);
      EXPECT_EQ(regrown, outcome.reward + (outcome.terminated ? 1 : 0) > 0);
      check();
      if (outcome.terminated) break;
    }
  }
}

TEST(SegmentedWorld, PartsOfAnObservationAreThoseOfEachAlone) {
  const auto both = make_batch(kId, 3, R"({"observation": "both"})");
  const auto rgb = make_batch(kId, 3);
  const auto mask = make_batch(kId, 3, R"({"observation": "mask"})");
  ASSERT_EQ(leaves(both->observation_space()).size(), 2U);
  std::vector<std::uint8_t> masks(3 * kPixels), pictures(3 * 3 * kPixels);
  BatchArrays of_both(*both), of_rgb(*rgb), of_mask(*mask);
  BatchRows rows = of_both.rows(*both);
  rows.obs[0].data = reinterpret_cast<std::byte*>(masks.data());
  rows.obs[1].data = reinterpret_cast<std::byte*>(pictures.data());
  both->attach(rows);
  for (int i = 0; i < 3; ++i) {
    for (BatchEnv* const batch : {both.get(), rgb.get(), mask.get()}) batch->reset(i, 5 + i);
  }
  NpRandom player(3);
  for (int step = 0; step < 60; ++step) {
    for (int i = 0; i < 3; ++i) {
      of_both.action(i) = of_rgb.action(i) = of_mask.action(i) =
          player.integers(0, World::kActions);
    }
    for (BatchEnv* const batch : {both.get(), rgb.get(), mask.get()}) batch->step_range(0, 3);
    ASSERT_TRUE(std::ranges::equal(of_rgb.obs<std::uint8_t>(0, pictures.size()), pictures));
    ASSERT_TRUE(std::ranges::equal(of_mask.obs<std::uint8_t>(0, masks.size()), masks));
  }
}

TEST(SegmentedWorld, SavedStateContinuesWithTheSameBits) {
  const auto batch = make_batch(kId, 2);
  BatchArrays arrays(*batch);
  batch->reset(0, 1);
  batch->reset(1, 2);
  NpRandom player(4);
  const auto play = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      arrays.action(0) = arrays.action(1) = player.integers(0, World::kActions);
      batch->step_range(0, 2);
    }
  };
  play(20);
  batch->load(1, batch->save(0));
  play(70);
  EXPECT_EQ(batch->state(0), batch->state(1));
  EXPECT_TRUE(std::ranges::equal(arrays.obs<std::uint8_t>(0, 3 * kPixels),
                                 arrays.obs<std::uint8_t>(1, 3 * kPixels)));
  EXPECT_EQ(arrays.truncated[0], arrays.truncated[1]);
  play(10);
  EXPECT_EQ(arrays.truncated[1], 1);
}

TEST(SegmentedWorld, SettingAStateShowsIt) {
  const auto batch = make_batch(kId, 2);
  BatchArrays arrays(*batch);
  batch->reset(0, 1);
  batch->set_state(1, batch->state(0));
  EXPECT_TRUE(std::ranges::equal(arrays.obs<std::uint8_t>(0, 3 * kPixels),
                                 arrays.obs<std::uint8_t>(1, 3 * kPixels)));
  EXPECT_THAT(message_of<InvalidArgument>([&] { batch->set_state(1, std::array<double, 3>{}); }),
              HasSubstr("3 numbers given, its state has 40"));
}

TEST(SegmentedWorld, MisuseIsNamed) {
  EXPECT_THAT(
      message_of<InvalidArgument>([] { make_batch(kId, 1, R"({"observation": "depth"})"); }),
      HasSubstr("argument observation must be one of rgb, mask, both, not \"depth\""));
  const auto batch = make_batch(kId, 1);
  BatchArrays arrays(*batch);
  EXPECT_THROW(batch->step_range(0, 1), InvalidState);
  batch->reset(0, 0);
  arrays.action(0) = World::kActions;
  EXPECT_THAT(message_of<InvalidArgument>([&] { batch->step_range(0, 1); }),
              HasSubstr("action 4 of environment 0 is not in Discrete(4)"));
}

}  // namespace
}  // namespace shoal::env::segmented
