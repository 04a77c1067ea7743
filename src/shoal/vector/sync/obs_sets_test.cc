#include "shoal/vector/sync/obs_sets.h"

#include <gtest/gtest.h>

#include <random>
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

}  // namespace
}  // namespace shoal::vector
