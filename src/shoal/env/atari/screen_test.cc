#include "shoal/env/atari/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shoal/env/atari/testing/noise_picture.h"
#include "shoal/os/error.h"
#include "shoal/os/fnv1a.h"

namespace shoal::env {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr PictureSize kFrame{8, 4};
constexpr std::size_t kPixels = 32;

ScreenOptions small(int stack, Pixels pixels = Pixels::kGymnasium) {
  return {.frame = kFrame, .picture = {4, 2}, .pixels = pixels, .stack = stack};
}

/// Palette index i is grey 2 * i, and (i, 0, 0) in RGB.
void learn(Screen& screen, int i) {
  Bytes gray, rgb;
  for (const std::uint8_t colour : screen.frame(i)) {
    gray.push_back(static_cast<std::uint8_t>(2 * colour));
    rgb.insert(rgb.end(), {colour, 0, 0});
  }
  screen.learn(i, gray, rgb);
}

void show(Screen& screen, int i, std::uint8_t colour) {
  std::ranges::fill(screen.frame(i), colour);
  if (!screen.grabbed(i)) learn(screen, i);
}

Bytes seen(const Screen& screen) {
  return {screen.observation().begin(), screen.observation().end()};
}

Bytes joined(const std::vector<Bytes>& pictures) {
  Bytes all;
  for (const Bytes& picture : pictures) {
    for (const auto byte : picture) all.push_back(byte);
  }
  return all;
}

TEST(AtariScreen, AsksForColoursThatItDoesNotKnowOnce) {
  Screen screen(small(0));
  EXPECT_FALSE(screen.grabbed(0)) << "index 0 is a colour, too";
  learn(screen, 0);
  EXPECT_TRUE(screen.grabbed(0));
  EXPECT_TRUE(screen.grabbed(1)) << "the other frame has the same palette";
  screen.frame(1)[5] = 9;
  EXPECT_FALSE(screen.grabbed(1));
  EXPECT_THROW(screen.learn(1, Bytes(kPixels - 1), Bytes(3 * kPixels)), InvalidArgument);
}

TEST(AtariScreen, PoolsTheLargerOfTwoFrames) {
  Screen screen(small(0));
  show(screen, 0, 3);
  show(screen, 1, 5);
  screen.frame(0)[0] = 100;
  ASSERT_FALSE(screen.grabbed(0));
  learn(screen, 0);
  screen.pool();
  screen.push();
  EXPECT_EQ(seen(screen), (Bytes{58, 10, 10, 10, 10, 10, 10, 10}));  // (200 + 3 * 10 + 2) / 4
  screen.pool_one(0);
  screen.push();
  EXPECT_EQ(seen(screen), (Bytes{55, 6, 6, 6, 6, 6, 6, 6}));  // (200 + 3 * 6 + 2) / 4
  show(screen, 0, 4);
  screen.pool_more();
  screen.push();
  EXPECT_EQ(seen(screen), (Bytes{56, 8, 8, 8, 8, 8, 8, 8})) << "what was pooled before counts";
}

TEST(AtariScreen, AStackBeginsWithCopiesOrZeros) {
  for (const bool zeros : {false, true}) {
    ScreenOptions options = small(3);
    options.zero_start = zeros;
    Screen screen(options);
    EXPECT_THAT(screen.shape(), testing::ElementsAre(3, 2, 4));
    show(screen, 0, 1);
    screen.pool_one(0);
    screen.begin();
    const Bytes first(8, zeros ? 0 : 2), second(8, 2), third(8, 14);
    EXPECT_EQ(seen(screen), joined({first, first, second}));
    show(screen, 0, 7);
    screen.pool_one(0);
    screen.push();
    EXPECT_EQ(seen(screen), joined({first, second, third}));
  }
}

/// A screen that has shown other frames before gives the same picture as a fresh one, whatever of it
/// has changed.
TEST(AtariScreen, WhatHasNotChangedIsNotStale) {
  const Bytes noise = noise_picture(kPixels * 40);
  for (const Pixels pixels : {Pixels::kGymnasium, Pixels::kSb3, Pixels::kCleanRl}) {
    Screen used(small(0, pixels));
    for (std::size_t round = 0; round < 40; ++round) {
      const auto draw = [&](Screen& screen, int i) {
        std::ranges::copy(used.frame(i), screen.frame(i).begin());
        if (!screen.grabbed(i)) learn(screen, i);
      };
      const std::size_t row = noise[round] % 4U;
      for (std::size_t x = 0; x < 8; ++x)
        used.frame(round % 2 == 0)[8 * row + x] = noise[round * kPixels + x];
      draw(used, 0);
      draw(used, 1);
      Screen fresh(small(0, pixels));
      draw(fresh, 0);
      draw(fresh, 1);
      for (Screen* screen : {&used, &fresh}) {
        if (round % 7 == 0)
          screen->pool_one(1);
        else
          screen->pool();
        screen->push();
      }
      ASSERT_EQ(seen(used), seen(fresh)) << "round " << round;
    }
  }
}

TEST(AtariScreen, GreyOfRgbIsOpenCvsBitForBit) {
  Screen screen({.frame = {256, 1}, .picture = {256, 1}, .pixels = Pixels::kSb3, .stack = 0});
  for (std::size_t i = 0; i < 256; ++i) screen.frame(0)[i] = static_cast<std::uint8_t>(i);
  ASSERT_FALSE(screen.grabbed(0));
  screen.learn(0, Bytes(256), noise_picture(3 * std::size_t{256}));
  screen.pool_one(0);
  screen.push();
  EXPECT_EQ(os::fnv1a(std::as_bytes(screen.observation())), 0x9c65da3d5f950b10U);
}

TEST(AtariScreen, PicturesOfRgbHaveAnAxisForIt) {
  ScreenOptions options = small(2);
  options.gray = false;
  Screen screen(options);
  EXPECT_THAT(screen.shape(), testing::ElementsAre(2, 2, 4, 3));
  show(screen, 0, 40);
  screen.pool_one(0);
  screen.begin();
  const auto first = screen.observation().first(6);
  EXPECT_THAT(first, testing::ElementsAre(40, 0, 0, 40, 0, 0));
}

TEST(AtariScreen, RefusesWhatCannotBe) {
  EXPECT_THROW(Screen(small(-1)), InvalidArgument);
  EXPECT_THROW(Screen({.frame = kFrame, .picture = {9, 2}}), InvalidArgument);
}

}  // namespace
}  // namespace shoal::env
