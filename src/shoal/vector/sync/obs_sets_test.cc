#include "shoal/vector/sync/obs_sets.h"

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace shoal::vector {
namespace {

TEST(ObsSets, OneSetIsNeverLent) {
  ObsSets sets(1);
  EXPECT_FALSE(sets.lease());
  EXPECT_EQ(sets.advance(), 0);
}

TEST(ObsSets, StaysWithTheCurrentSetWhileNobodyHoldsIt) {
  ObsSets sets(3);
  EXPECT_EQ(sets.advance(), 0);
  sets.lease();
  EXPECT_EQ(sets.advance(), 0);
}

TEST(ObsSets, AHeldSetIsLeftAlone) {
  ObsSets sets(3);
  const auto first = sets.lease();
  ASSERT_TRUE(first);
  EXPECT_EQ(sets.advance(), 1);
  auto second = sets.lease();
  ASSERT_TRUE(second);
  EXPECT_EQ(sets.advance(), 2);
  EXPECT_FALSE(sets.lease()) << "nothing would be left for the next result";
  EXPECT_EQ(sets.advance(), 2);
  second.reset();
  EXPECT_TRUE(sets.lease());
}

TEST(ObsSets, NoHeldSetIsEverHandedOutAgain) {
  std::mt19937 random(1);
  ObsSets sets(4);
  std::vector<std::pair<int, std::shared_ptr<const void>>> held;
  for (int round = 0; round < 10'000; ++round) {
    const int set = sets.advance();
    for (const auto& [other, lease] : held) ASSERT_NE(set, other);
    if (auto lease = sets.lease(); lease && random() % 2 == 0) held.emplace_back(set, lease);
    if (!held.empty() && random() % 2 == 0) {
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
    }
  }
}

TEST(ObsSets, WhatTheHolderOfALeaseReadsIsReadBeforeItsSetIsWrittenAgain) {
  // ThreadSanitizer finds it a race where dropping a lease does not order the two.
  struct Held {
    int set;
    int round;
    std::shared_ptr<const void> lease;
  };
  constexpr int kRounds = 20'000;
  ObsSets sets(3);
  std::array<int, 3> values{};
  std::mutex mutex;
  std::condition_variable changed;
  std::queue<Held> held;
  std::thread holder([&] {
    for (int read = 0; read < kRounds; ++read) {
      Held next;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return !held.empty(); });
        next = std::move(held.front());
        held.pop();
      }
      EXPECT_EQ(values[static_cast<std::size_t>(next.set)], next.round);
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    std::shared_ptr<const void> lease;
    int set = -1;
    while (!lease) {  // until the holder has dropped one
      set = sets.advance();
      values[static_cast<std::size_t>(set)] = round;
      lease = sets.lease();
    }
    const std::lock_guard lock(mutex);
    held.push({set, round, std::move(lease)});
    changed.notify_one();
  }
  holder.join();
}

}  // namespace
}  // namespace shoal::vector
