// The expected numbers are NumPy's: numpy.random.Generator(numpy.random.PCG64(seed)), NumPy 2.4.6.
#include "shoal/env/np_random.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "shoal/os/error.h"

namespace shoal::env {
namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(NpRandom, RawBitsAreThoseOfPcg64) {
  NpRandom random(42);
  EXPECT_EQ(random.next_u64(), 0xc621fbcd16d92688U);
  EXPECT_EQ(random.next_u64(), 0x705a5661a791ffc1U);
  EXPECT_EQ(random.next_u64(), 0xdbcd12c26eda1624U);
}

TEST(NpRandom, SeedOfMoreThan32BitsUsesBothWords) {
  NpRandom random((std::uint64_t{1} << 40) + 7);
  EXPECT_EQ(random.random(), 0x1.a8dd3c4069bc4p-1);
  EXPECT_EQ(random.random(), 0x1.056eb7267021cp-2);
  EXPECT_EQ(random.random(), 0x1.3af6a07822d64p-3);
}

TEST(NpRandom, IntegersOfEveryWidthFollowNumPy) {
  NpRandom random(0);
  for (const int expected : {8, 6, 5, 2, 3, 0, 0, 0}) EXPECT_EQ(random.integers(0, 10), expected);
  for (const std::int64_t expected : {894200084523, 1003585370533, 667003089278}) {
    EXPECT_EQ(random.integers(-5, std::int64_t{1} << 40), expected);
  }
  EXPECT_EQ(random.integers(kLeast, kMost), 4233464326268295748);
  EXPECT_EQ(random.integers(0, std::int64_t{1} << 32), 2715582399);
}

TEST(NpRandom, IntegersReachBothEndsAndNothingBeyond) {
  NpRandom random(1);
  std::vector<int> seen(3);
  for (int i = 0; i < 300; ++i) ++seen.at(static_cast<std::size_t>(random.integers(-1, 2) + 1));
  for (const int times : seen) EXPECT_GT(times, 0);
}

TEST(NpRandom, EmptyIntervalOfIntegersIsRefused) {
  NpRandom random(1);
  EXPECT_THROW(random.integers(3, 3), InvalidArgument);
  EXPECT_THROW(random.integers(kMost, kLeast), InvalidArgument);
}

TEST(NpRandom, SeedingAgainBeginsTheStreamAgainAndForgetsTheHalfDraw) {
  NpRandom random(7);
  const std::uint32_t first = random.next_u32();
  random.seed(7);
  EXPECT_EQ(random.next_u32(), first);
}

TEST(NpRandom, CopyContinuesFromTheSamePlace) {
  NpRandom random(7);
  random.next_u32();
  NpRandom copy = random;
  EXPECT_EQ(random.next_u32(), copy.next_u32());
  EXPECT_EQ(random.next_u64(), copy.next_u64());
}

TEST(NpRandom, UnseededStreamsDiffer) { EXPECT_NE(NpRandom().next_u64(), NpRandom().next_u64()); }

}  // namespace
}  // namespace shoal::env
