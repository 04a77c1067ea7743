#include "shoal/vector/local/share_policy.h"

#include <gtest/gtest.h>

namespace shoal::vector {
namespace {

constexpr auto kAwake = [](int) { return true; };
constexpr auto kAsleep = [](int) { return false; };

SharePolicy learned(int items, int threads, int cpus, std::uint64_t busy_ns,
                    std::uint64_t gap_ns = 1'000'000) {
  SharePolicy policy(items, threads, cpus);
  for (int round = 0; round < 200; ++round) policy.record(busy_ns, gap_ns, false);
  return policy;
}

TEST(SharePolicy, AFirstRoundUsesEveryCpuAndNoMore) {
  EXPECT_EQ(SharePolicy(100, 64, 2).plan(kAsleep), (Share{.helpers = 1, .chunk = 48, .chunks = 3}));
  EXPECT_EQ(SharePolicy(100, 3, 8).plan(kAsleep).helpers, 2);
  EXPECT_EQ(SharePolicy(2, 8, 8).plan(kAsleep).helpers, 1);
  EXPECT_EQ(SharePolicy(100, 1, 8).plan(kAsleep).helpers, 0);
}

TEST(SharePolicy, ShortRoundsStayWithTheCaller) {
  EXPECT_EQ(learned(8, 2, 2, 300).plan(kAwake).helpers, 0);
  EXPECT_EQ(learned(8, 2, 2, 30'000).plan(kAsleep).helpers, 0);
}

TEST(SharePolicy, WhoSpinsIsWorthLessWorkThanWhoSleeps) {
  EXPECT_EQ(learned(1024, 2, 2, 30'000).plan(kAwake).helpers, 1);
  EXPECT_EQ(learned(1024, 2, 2, 100'000).plan(kAsleep).helpers, 1);
}

TEST(SharePolicy, WakesOnlyAsManyAsSaveMoreThanTheyCost) {
  EXPECT_EQ(learned(1024, 16, 16, 1'000'000).plan(kAsleep).helpers, 4);
  EXPECT_EQ(learned(1024, 16, 16, 100'000'000).plan(kAsleep).helpers, 15);
}

TEST(SharePolicy, ChunksAreOfTwoToFiftyMicroseconds) {
  const Share cheap = learned(1024, 2, 2, 30'000).plan(kAwake);  // 29 ns an item
  EXPECT_EQ(cheap.chunk, 128);
  EXPECT_EQ(cheap.chunks, 8);
  const Share dear = learned(1024, 2, 2, 1'024'000'000).plan(kAwake);  // a millisecond an item
  EXPECT_EQ(dear.chunk, 1);
  EXPECT_EQ(dear.chunks, 1024);
}

TEST(SharePolicy, ManyItemsFitTheCountersOfARound) {
  const Share share = learned(1'000'000, 2, 2, 1'000'000'000'000).plan(kAwake);
  EXPECT_LE(share.chunks, 0xffff);
  EXPECT_GE(share.chunks * share.chunk, 1'000'000);
}

TEST(SharePolicy, MoreThreadsThanCpusAreForWorkThatSleeps) {
  SharePolicy policy = learned(64, 64, 2, 64'000'000);
  EXPECT_EQ(policy.plan(kAsleep).helpers, 1);
  policy.record_sleep(true);
  policy.record_sleep(true);
  EXPECT_EQ(policy.plan(kAsleep).helpers, 63);
  for (int round = 0; round < 8; ++round) policy.record_sleep(false);
  EXPECT_EQ(policy.plan(kAsleep).helpers, 1);
}

// Rounds of 20 µs that follow each other at once: a helper is woken on trial.
TEST(SharePolicy, TriesASleeperLessAndLessOftenWhileItDoesNotStayAwake) {
  SharePolicy policy = learned(1024, 2, 2, 20'000, 1'000);
  const auto tries_in = [&](int rounds) {
    int tries = 0;
    for (int round = 0; round < rounds; ++round) {
      tries += policy.plan(kAsleep).helpers;
      policy.record(20'000, 1'000, false);
    }
    return tries;
  };
  EXPECT_GE(tries_in(1000), 2);
  EXPECT_LE(tries_in(100'000), 20);
}

TEST(SharePolicy, TriesAgainAtOnceWhereASleeperHasPaid) {
  SharePolicy policy = learned(1024, 2, 2, 20'000, 1'000);
  ASSERT_EQ(policy.plan(kAsleep).helpers, 1);
  for (int round = 0; round < 10; ++round) policy.record(20'000, 1'000, true);
  EXPECT_EQ(policy.plan(kAsleep).helpers, 1);
}

TEST(SharePolicy, OnePreemptedRoundTeachesLittle) {
  SharePolicy policy = learned(8, 2, 2, 1'000);
  policy.record(10'000'000, 0, false);
  EXPECT_LT(policy.cost_ns(), 2'000);
}

}  // namespace
}  // namespace shoal::vector
