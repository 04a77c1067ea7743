#include "shoal/collect/running_moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

constexpr double kPrior = 1e-4;  // samples that the initial mean 0 and variance 1 count for

TEST(RunningMoments, BeginWithMeanZeroAndVarianceOne) {
  const RunningMoments moments(2);
  EXPECT_EQ(moments.mean()[1], 0.0);
  EXPECT_EQ(moments.var()[1], 1.0);
  EXPECT_EQ(moments.count(), kPrior);
}

TEST(RunningMoments, BatchesOfAnySizeGiveTheMomentsOfTheWhole) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(5.0, 2.0);
  std::vector<double> all;
  RunningMoments moments(2);
  for (const int rows : {1, 7, 64, 3, 500}) {
    std::vector<double> batch;
    for (int k = 0; k < 2 * rows; ++k) batch.push_back(normal(random) * (k % 2 == 0 ? 1.0 : 10.0));
    moments.update(std::span<const double>(batch));
    all.insert(all.end(), batch.begin(), batch.end());
  }
  const double n = static_cast<double>(all.size()) / 2;
  for (std::size_t element = 0; element < 2; ++element) {
    double mean = 0, squares = 0;
    for (std::size_t k = element; k < all.size(); k += 2) mean += all[k] / n;
    for (std::size_t k = element; k < all.size(); k += 2)
      squares += (all[k] - mean) * (all[k] - mean);
    EXPECT_NEAR(moments.mean()[element], mean, 1e-4);
    EXPECT_NEAR(moments.var()[element] / (squares / n), 1.0, 1e-4);
  }
  EXPECT_DOUBLE_EQ(moments.count(), n + kPrior);
}

TEST(RunningMoments, FarFromZeroTheyStayAccurate) {
  RunningMoments moments(1);
  // Begun there, so that the prior's distance from the data does not count.
  moments.restore(std::vector<double>{1e9}, std::vector<double>{0.0}, 1e-4);
  for (int k = 0; k < 1000; ++k) {
    const double value = 1e9 + (k % 2);
    moments.update(std::span<const double>(&value, 1));
  }
  EXPECT_NEAR(moments.var()[0], 0.25, 1e-4);
}

TEST(RunningMoments, RestoredMomentsGoOnBitForBit) {
  const std::vector<float> first{1, 2, 3, 4, 5, 6};
  const std::vector<float> second{0.1F, 7, -3};
  RunningMoments whole(3);
  whole.update(std::span<const float>(first));
  RunningMoments copy(3);
  copy.restore(whole.mean(), whole.var(), whole.count());
  whole.update(std::span<const float>(second));
  copy.update(std::span<const float>(second));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(copy.mean()[i], whole.mean()[i]);
    EXPECT_EQ(copy.var()[i], whole.var()[i]);
  }
}

TEST(RunningMoments, NoRowsChangeNothing) {
  RunningMoments moments(3);
  moments.update(std::span<const float>());
  EXPECT_EQ(moments.count(), kPrior);
}

TEST(RunningMoments, RestoringAnotherSizeThrows) {
  RunningMoments moments(3);
  const std::vector<double> two{1, 2};
  EXPECT_THROW(moments.restore(two, two, 1), InvalidArgument);
}

}  // namespace
}  // namespace shoal::collect
