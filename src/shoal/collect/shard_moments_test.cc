#include "shoal/collect/shard_moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace shoal::collect {
namespace {

constexpr std::size_t kSize = 3;

std::vector<float> rows(int seed, std::size_t count) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count * kSize; ++i)
    values.push_back(static_cast<float>((seed * 37 + static_cast<int>(i) * 11) % 29) + 0.25F);
  return values;
}

void expect_near(const RunningMoments& a, const RunningMoments& b) {
  EXPECT_NEAR(a.count(), b.count(), 1e-9);
  for (std::size_t i = 0; i < kSize; ++i) {
    EXPECT_NEAR(a.mean()[i], b.mean()[i], 1e-9);
    EXPECT_NEAR(a.var()[i], b.var()[i], 1e-9);
  }
}

/// The agreed moments after two agreements over four shards, which are in so many processes.
RunningMoments agreed_by(int processes) {
  const int each = 4 / processes;
  std::vector<RunningMoments> agreed(static_cast<std::size_t>(processes), RunningMoments(kSize));
  std::vector<ShardMoments> moments;
  for (const auto& its : agreed) moments.emplace_back(kSize, each, its);
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<double> news(4 * moments[0].width());
    for (int p = 0; p < processes; ++p) {
      auto& its = moments[static_cast<std::size_t>(p)];
      for (int s = 0; s < each; ++s)
        for (int step = 0; step < 3; ++step) {
          const auto shard = p * each + s;
          its.update(s, std::span<const float>(rows(turn * 100 + shard * 10 + step, 2)),
                     agreed[static_cast<std::size_t>(p)]);
        }
      const auto width = static_cast<std::size_t>(each) * its.width();
      its.tell(std::span(news).subspan(static_cast<std::size_t>(p) * width, width));
    }
    for (int p = 0; p < processes; ++p)
      moments[static_cast<std::size_t>(p)].agree(news, agreed[static_cast<std::size_t>(p)]);
  }
  return agreed[0];
}

TEST(ShardMoments, AgreeOnTheSameBitsWhereverTheShardsAre) {
  const RunningMoments one = agreed_by(1);
  for (const int processes : {2, 4}) {
    const RunningMoments several = agreed_by(processes);
    EXPECT_TRUE(std::ranges::equal(one.mean(), several.mean()));
    EXPECT_TRUE(std::ranges::equal(one.var(), several.var()));
    EXPECT_EQ(one.count(), several.count());
  }
}

TEST(ShardMoments, AgreeOnWhatOneStreamOfAllRowsGives) {
  RunningMoments all(kSize);
  for (int turn = 0; turn < 2; ++turn)
    for (int shard = 0; shard < 4; ++shard)
      for (int step = 0; step < 3; ++step)
        all.update(std::span<const float>(rows(turn * 100 + shard * 10 + step, 2)));
  expect_near(agreed_by(2), all);
}

TEST(ShardMoments, AShardGoesByItsOwnRowsAtOnceAndByNobodyElses) {
  RunningMoments agreed(kSize);
  ShardMoments moments(kSize, 2, agreed);
  RunningMoments alone(kSize);
  const auto some = rows(1, 5);
  alone.update(std::span<const float>(some));
  expect_near(moments.update(0, std::span<const float>(some), agreed), alone);
  EXPECT_EQ(moments.of(1).count(), agreed.count());
}

TEST(ShardMoments, AShardWithoutRowsChangesNothing) {
  RunningMoments agreed(kSize);
  ShardMoments moments(kSize, 1, agreed);
  moments.update(0, std::span<const float>(), agreed);
  std::vector<double> news(moments.width());
  moments.tell(news);
  const double count = agreed.count();
  moments.agree(news, agreed);
  EXPECT_EQ(agreed.count(), count);
  for (const double var : agreed.var()) EXPECT_EQ(var, 1.0);
}

}  // namespace
}  // namespace shoal::collect
