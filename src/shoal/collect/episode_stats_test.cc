#include "shoal/collect/episode_stats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

using Flags = std::vector<std::uint8_t>;
const Flags kNo{0, 0};

TEST(EpisodeStats, SumsRewardsUntilEitherKindOfEnd) {
  EpisodeStats stats(2);
  EXPECT_TRUE(std::isnan(stats.mean_return()));
  stats.step(std::vector<double>{1, 10}, kNo, kNo, kNo);
  stats.step(std::vector<double>{2, 20}, Flags{1, 0}, Flags{0, 1}, kNo);
  EXPECT_EQ(stats.take_finished(), (std::vector<Episode>{{0, 3, 2}, {1, 30, 2}}));
  EXPECT_TRUE(stats.take_finished().empty());
  EXPECT_EQ(stats.mean_return(), 16.5);
  EXPECT_EQ(stats.mean_length(), 2);
  EXPECT_EQ(stats.count(), 2);
}

TEST(EpisodeStats, AutoresetRowsAddNothing) {
  EpisodeStats stats(2);
  stats.step(std::vector<double>{1, 1}, Flags{1, 0}, kNo, kNo);
  stats.step(std::vector<double>{99, 1}, kNo, kNo, Flags{1, 0});
  stats.step(std::vector<double>{5, 1}, Flags{1, 1}, kNo, kNo);
  EXPECT_EQ(stats.take_finished(), (std::vector<Episode>{{0, 1, 1}, {0, 5, 1}, {1, 3, 3}}));
}

TEST(EpisodeStats, AFaultDropsTheEpisode) {
  EpisodeStats stats(2);
  stats.step(std::vector<double>{7, 1}, kNo, kNo, kNo);
  stats.step(std::vector<double>{0, 1}, kNo, Flags{1, 0}, kNo, Flags{1, 0});
  stats.step(std::vector<double>{0, 1}, kNo, kNo, Flags{1, 0});
  stats.step(std::vector<double>{2, 1}, Flags{1, 0}, kNo, kNo);
  EXPECT_EQ(stats.take_finished(), (std::vector<Episode>{{0, 2, 1}}));
}

TEST(EpisodeStats, TheMeanIsOfTheLastEpisodesOnly) {
  EpisodeStats stats(1, 2);
  for (const double r : {100.0, 1.0, 2.0}) {
    stats.step(std::vector<double>{r}, Flags{1}, Flags{0}, Flags{0});
  }
  EXPECT_EQ(stats.mean_return(), 1.5);
  EXPECT_EQ(stats.count(), 3);
}

TEST(EpisodeStats, RestoredStatsGoOnInTheMiddleOfAnEpisode) {
  EpisodeStats stats(1);
  stats.step(std::vector<double>{4}, Flags{1}, Flags{0}, Flags{0});
  stats.step(std::vector<double>{3}, Flags{0}, Flags{0}, Flags{0});
  EpisodeStats copy(1);
  copy.restore({stats.window().begin(), stats.window().end()}, stats.count(),
               stats.running_return(), stats.running_length());
  copy.step(std::vector<double>{2}, Flags{1}, Flags{0}, Flags{0});
  EXPECT_EQ(copy.take_finished(), (std::vector<Episode>{{0, 5, 2}}));
  EXPECT_EQ(copy.mean_return(), 4.5);
  EXPECT_EQ(copy.count(), 2);
  EpisodeStats other(3);
  EXPECT_THROW(other.restore({}, 0, stats.running_return(), stats.running_length()),
               InvalidArgument);
}

TEST(EpisodeStats, FinishedEpisodesThatNobodyTakesAreForgotten) {
  EpisodeStats stats(1);
  const std::vector<double> reward{2};
  const std::vector<std::uint8_t> yes{1}, no{0};
  stats.step(reward, yes, no, no);
  stats.forget_finished();
  stats.step(reward, no, yes, no);
  std::vector<std::int64_t> steps;
  EXPECT_EQ(stats.take_finished(&steps), (std::vector<Episode>{{0, 2, 1}}));
  EXPECT_EQ(steps, std::vector<std::int64_t>{0});
  EXPECT_EQ(stats.count(), 2);
  EXPECT_EQ(stats.window().size(), 2U);
}

TEST(EpisodeStats, RestartForgetsTheEpisodesUnderWayOnly) {
  EpisodeStats stats(1);
  stats.step(std::vector<double>{4}, Flags{1}, Flags{0}, Flags{0});
  stats.step(std::vector<double>{3}, Flags{0}, Flags{0}, Flags{0});
  stats.restart();
  stats.step(std::vector<double>{1}, Flags{1}, Flags{0}, Flags{0});
  EXPECT_EQ(stats.mean_return(), 2.5);
}

}  // namespace
}  // namespace shoal::collect
