#include "shoal/group/pairwise_sum.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace shoal::group {
namespace {

std::vector<std::vector<float>> some_parts(std::size_t count, std::size_t size) {
  std::vector<std::vector<float>> parts(count);
  for (std::size_t p = 0; p < count; ++p)
    for (std::size_t i = 0; i < size; ++i)
      parts[p].push_back(1.0F / static_cast<float>(1 + p * 31 + i % 101));
  return parts;
}

std::vector<float> sum_of(const std::vector<std::vector<float>>& parts) {
  std::vector<const float*> pointers;
  for (const auto& part : parts) pointers.push_back(part.data());
  std::vector<float> sum(parts.front().size());
  add_parts<float>(pointers, 0, sum.size(), sum.data());
  return sum;
}

TEST(PairwiseSum, IsTheOrderThatIsDrawn) {
  const auto parts = some_parts(6, 1);
  const auto p = [&](int i) { return parts[static_cast<std::size_t>(i)][0]; };
  const float two = p(0) + p(1);
  EXPECT_EQ(sum_of({parts[0], parts[1]})[0], two);
  EXPECT_EQ(sum_of({parts[0], parts[1], parts[2]})[0], two + p(2));
  EXPECT_EQ(sum_of(parts)[0], (two + (p(2) + p(3))) + (p(4) + p(5)));
}

TEST(PairwiseSum, PartsThatArePowersOfTwoInLineMayBeAddedFirst) {
  const auto parts = some_parts(8, 1'000);
  const auto all = sum_of(parts);
  for (const std::size_t together : {2U, 4U, 8U}) {
    std::vector<std::vector<float>> sums;
    for (std::size_t from = 0; from < parts.size(); from += together)
      sums.push_back(sum_of({parts.begin() + static_cast<std::ptrdiff_t>(from),
                             parts.begin() + static_cast<std::ptrdiff_t>(from + together)}));
    EXPECT_EQ(sum_of(sums), all) << together;
  }
}

TEST(PairwiseSum, ThePlaceOfAPartMayTakeTheSum) {
  auto parts = some_parts(3, 700);
  const auto wanted = sum_of(parts);
  std::vector<const float*> pointers;
  for (const auto& part : parts) pointers.push_back(part.data());
  add_parts<float>(pointers, 0, 700, parts[1].data());
  EXPECT_EQ(parts[1], wanted);
}

TEST(PairwiseSum, OnlyTheRangeThatWasAskedForIsWritten) {
  const auto parts = some_parts(2, 10);
  const std::vector<const float*> pointers{parts[0].data(), parts[1].data()};
  std::vector<float> sum(10, -1);
  add_parts<float>(pointers, 3, 5, sum.data());
  for (std::size_t i = 0; i < sum.size(); ++i)
    EXPECT_EQ(sum[i], i == 3 || i == 4 ? parts[0][i] + parts[1][i] : -1.0F);
}

}  // namespace
}  // namespace shoal::group
