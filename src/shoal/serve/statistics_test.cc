#include "shoal/serve/statistics.h"

#include <gtest/gtest.h>

#include <memory>

namespace shoal::serve {
namespace {

TEST(Histogram, NothingRecordedIsEmpty) {
  const auto histogram = std::make_unique<Histogram>();
  EXPECT_EQ(histogram->summary().count, 0u);
  EXPECT_EQ(histogram->summary().p99, 0);
}

TEST(Histogram, PercentilesAreAtMostAnEighthTooHigh) {
  const auto histogram = std::make_unique<Histogram>();
  for (std::uint64_t value = 1; value <= 10'000; ++value) histogram->record(value);
  const Distribution all = histogram->summary();
  EXPECT_EQ(all.count, 10'000u);
  EXPECT_DOUBLE_EQ(all.mean, 5000.5);
  for (const auto& [found, exact] :
       {std::pair{all.p50, 5000.0}, {all.p90, 9000.0}, {all.p99, 9900.0}, {all.max, 10'000.0}}) {
    EXPECT_GE(found, exact);
    EXPECT_LE(found, exact * 1.125 + 1);
  }
}

TEST(Histogram, SmallAndHugeValuesHaveAPlace) {
  const auto histogram = std::make_unique<Histogram>();
  histogram->record(0);
  EXPECT_EQ(histogram->summary().max, 0);
  histogram->record(3);
  EXPECT_EQ(histogram->summary().max, 3);
  histogram->record(UINT64_MAX);
  EXPECT_EQ(histogram->summary().count, 3u);
}

}  // namespace
}  // namespace shoal::serve
