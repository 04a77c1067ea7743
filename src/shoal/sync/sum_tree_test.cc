#include "shoal/sync/sum_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "shoal/sync/testing/owners_fixture.h"

namespace shoal::sync {
namespace {

using namespace testing;

class SumTreeTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kLeaves = 64;
  std::vector<SystemAtomics::Word64> words_ =
      std::vector<SystemAtomics::Word64>(SumTree::words_needed(kLeaves));
  SumTree tree_{words_.data(), kLeaves};
};

TEST_F(SumTreeTest, AnEmptyOneHasNoWeight) {
  EXPECT_EQ(tree_.total(), 0U);
  EXPECT_EQ(tree_.least(), 0U);
  EXPECT_EQ(tree_.greatest(), 0U);
  EXPECT_TRUE(tree_.is_consistent());
}

TEST_F(SumTreeTest, EveryNumberBelowTheTotalFallsOnThePlaceThatALoopFinds) {
  std::mt19937 dice(1);
  std::array<std::uint64_t, kLeaves> weights{};
  for (int turn = 0; turn < 200; ++turn) {
    const std::size_t place = dice() % kLeaves;
    weights[place] = dice() % 3 == 0 ? 0 : dice() % 20;
    tree_.assign(place, 1, weights[place]);
    std::uint64_t target = 0;
    for (std::size_t p = 0; p < kLeaves; ++p)
      for (std::uint64_t k = 0; k < weights[p]; ++k) ASSERT_EQ(tree_.find(target++), p);
    ASSERT_EQ(tree_.total(), target);
  }
  EXPECT_TRUE(tree_.is_consistent());
}

TEST_F(SumTreeTest, SumsAreExactAfterMillionsOfChangesWhateverTheirSizes) {
  std::mt19937_64 dice(2);
  std::array<std::uint64_t, kLeaves> weights{};
  for (int turn = 0; turn < 300'000; ++turn) {
    const std::size_t place = dice() % kLeaves;
    weights[place] = (dice() & SumTree::kMaxValue) >> (dice() % 44);
    tree_.assign(place, 0, weights[place]);
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t weight : weights) sum += weight;
  EXPECT_EQ(tree_.total(), sum);
  EXPECT_TRUE(tree_.is_consistent());
}

TEST_F(SumTreeTest, LeastIsBelowTheLeastWeightByA32ndAtMost) {
  std::mt19937_64 dice(3);
  std::array<std::uint64_t, kLeaves> weights{};
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::size_t place = dice() % kLeaves;
    weights[place] = (dice() & SumTree::kMaxValue) >> (dice() % 44);
    tree_.assign(place, 0, weights[place]);
    std::uint64_t least = 0;
    for (const std::uint64_t weight : weights)
      if (weight != 0 && (least == 0 || weight < least)) least = weight;
    ASSERT_LE(tree_.least(), least);
    ASSERT_GE(static_cast<double>(tree_.least()) * (1 + 1.0 / 32), static_cast<double>(least));
  }
}

TEST_F(SumTreeTest, AChangeThatComesLateDoesNotFindThePlace) {
  tree_.assign(3, 7, 100);
  EXPECT_TRUE(tree_.update(3, 7, 50));
  tree_.assign(3, 8, 20);
  EXPECT_FALSE(tree_.update(3, 7, 99));
  EXPECT_EQ(tree_.leaf(3).value, 20U);
  EXPECT_EQ(tree_.leaf(3).tag, 8U);
  EXPECT_EQ(tree_.total(), 20U);
}

TEST_F(SumTreeTest, TagsAreCountedModuloTheirNumber) {
  tree_.assign(3, SumTree::kTags + 5, 100);
  EXPECT_EQ(tree_.leaf(3).tag, 5U);
  EXPECT_TRUE(tree_.update(3, 2 * SumTree::kTags + 5, 1));
}

TEST_F(SumTreeTest, ThreadsThatChangeWeightsAtOnceLoseNone) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937 dice(t);
      for (int turn = 0; turn < 20'000; ++turn) {
        const std::size_t place = dice() % kLeaves;
        tree_.raise(dice() % 1000);
        if (dice() % 2 == 0)
          tree_.assign(place, dice() % 2, dice() % 1000);
        else
          static_cast<void>(tree_.update(place, dice() % 2, dice() % 1000));
        const std::uint64_t total = std::max<std::uint64_t>(tree_.total(), 1);
        EXPECT_LT(tree_.find(dice() % total), kLeaves);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(tree_.is_consistent());
  EXPECT_GE(tree_.greatest(), 990U);
}

/// A tree's words under two kinds of atomics of the same bytes.
struct Words {
  std::array<MortalAtomics::Word64, SumTree::words_needed(8)> mortal;
  BasicSumTree<MortalAtomics> tree() { return {mortal.data(), 8}; }
};
static_assert(sizeof(Words) < 16'000);

TEST(SumTreeDeath, OneKilledAnywhereInAChangeLeavesTheOldWeightOrTheNewAndRebuildMendsTheSums) {
  const Shared<Words> words;
  for (std::size_t place = 0; place < 8; ++place) words->tree().assign(place, 0, 10 + place);
  int inconsistent = 0;
  const int kills = kill_at_every_operation(
      [&] {
        words->tree().assign(5, 1, 15);
        ASSERT_TRUE(words->tree().is_consistent());
      },
      [&] { words->tree().update(5, 1, 1000); },
      [&](int) {
        auto tree = words->tree();
        const std::uint64_t weight = tree.leaf(5).value;
        EXPECT_TRUE(weight == 15 || weight == 1000);
        inconsistent += tree.is_consistent() ? 0 : 1;
        tree.rebuild();
        EXPECT_TRUE(tree.is_consistent());
        EXPECT_EQ(tree.total(), 10 + 11 + 12 + 13 + 14 + weight + 16 + 17);
        EXPECT_LE(tree.least(), 10U);
      });
  EXPECT_GE(kills, 7);  // a load, an exchange, three sums, two counts
  EXPECT_GE(inconsistent, 4);
}

}  // namespace
}  // namespace shoal::sync
