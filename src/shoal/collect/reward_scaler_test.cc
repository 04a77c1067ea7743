#include "shoal/collect/reward_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace shoal::collect {
namespace {

using Flags = std::vector<std::uint8_t>;

TEST(RewardScaler, RawRewardsStayExceptWhereTheRowIsNotValid) {
  RewardScaler scaler(3, {.form = RewardForm::kRaw});
  std::vector<float> out(3);
  scaler.scale(std::vector<double>{-2.5, 7, 9}, Flags{1, 1, 0}, Flags{0, 0, 0}, out);
  EXPECT_EQ(out, (std::vector<float>{-2.5F, 7, 0}));
}

TEST(RewardScaler, SignsOnly) {
  RewardScaler scaler(3, {.form = RewardForm::kSign});
  std::vector<float> out(3);
  scaler.scale(std::vector<double>{-2.5, 7, 0}, Flags{1, 1, 1}, Flags{0, 0, 0}, out);
  EXPECT_EQ(out, (std::vector<float>{-1, 1, 0}));
}

TEST(RewardScaler, DividesByTheDeviationOfTheDiscountedReturn) {
  RewardScaler scaler(1, {.form = RewardForm::kNormalized, .gamma = 0.5, .clip = 100});
  RunningMoments expected(1);
  std::vector<float> out(1);
  double discounted = 0;
  const std::vector<double> rewards{4, -2, 6, 1, 8};
  for (std::size_t k = 0; k < rewards.size(); ++k) {
    const bool done = k == 2;  // the return begins anew after it
    discounted = discounted * 0.5 + rewards[k];
    expected.update(std::span<const double>(&discounted, 1));
    scaler.scale(std::span<const double>(&rewards[k], 1), Flags{1}, Flags{done}, out);
    EXPECT_FLOAT_EQ(out[0], static_cast<float>(rewards[k] / std::sqrt(expected.var()[0] + 1e-8)));
    if (done) discounted = 0;
  }
}

TEST(RewardScaler, ClipsWhatItHasScaled) {
  RewardScaler scaler(1, {.form = RewardForm::kNormalized, .gamma = 0.9, .clip = 0.5});
  std::vector<float> out(1);
  for (const double reward : {1.0, 1e6, -1e6}) {
    scaler.scale(std::span<const double>(&reward, 1), Flags{1}, Flags{0}, out);
    EXPECT_LE(std::abs(out[0]), 0.5F);
  }
  EXPECT_EQ(out[0], -0.5F);
}

TEST(RewardScaler, RowsThatAreNotValidTeachNothing) {
  RewardScaler scaler(2, {.form = RewardForm::kNormalized});
  RewardScaler alone(1, {.form = RewardForm::kNormalized});
  std::vector<float> out(2), out_alone(1);
  for (const double reward : {1.0, 3.0, -2.0}) {
    scaler.scale(std::vector<double>{reward, 1e9}, Flags{1, 0}, Flags{0, 0}, out);
    alone.scale(std::span<const double>(&reward, 1), Flags{1}, Flags{0}, out_alone);
    EXPECT_EQ(out[0], out_alone[0]);
    EXPECT_EQ(out[1], 0);
  }
  EXPECT_EQ(scaler.moments().var()[0], alone.moments().var()[0]);
}

TEST(RewardScaler, RewardsThatAreNotFiniteTeachNothingAndStayAsTheyAre) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  RewardScaler scaler(3, {.form = RewardForm::kNormalized});
  RewardScaler alone(1, {.form = RewardForm::kNormalized});
  std::vector<float> out(3), out_alone(1);
  for (const double reward : {1.0, 3.0, -2.0}) {
    scaler.scale(std::vector<double>{reward, -kInfinity, std::nan("")}, Flags{1, 1, 1},
                 Flags{0, 0, 0}, out);
    alone.scale(std::span<const double>(&reward, 1), Flags{1}, Flags{0}, out_alone);
    EXPECT_EQ(out[0], out_alone[0]);
    EXPECT_EQ(out[1], -kInfinity);
    EXPECT_TRUE(std::isnan(out[2]));
  }
  EXPECT_EQ(scaler.moments().var()[0], alone.moments().var()[0]);
  EXPECT_EQ(scaler.running_return()[0], alone.running_return()[0]);
}

}  // namespace
}  // namespace shoal::collect
