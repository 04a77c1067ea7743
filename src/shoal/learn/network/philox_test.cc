#include "shoal/learn/network/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace shoal::learn {
namespace {

using Four = std::array<std::uint32_t, 4>;

// The known answers that the authors of Random123 publish for philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox(0)(Stream{0}, 0, 0, 0), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~std::uint64_t{0})(Stream{0xFF}, ~std::uint64_t{0}, ~0U, ~0U),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822)(Stream{0x03}, 0x70734413198a2e, 0x85a308d3, 0x243f6a88),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryPartOfTheNameMatters) {
  const Philox random(5);
  const std::set<Four> different{
      random(Stream::kAction, 1, 2, 3),    random(Stream::kShuffle, 1, 2, 3),
      random(Stream::kAction, 2, 2, 3),    random(Stream::kAction, 1, 3, 3),
      random(Stream::kAction, 1, 2, 4),    random(Stream::kAction, 1ULL << 40, 2, 3),
      Philox(6)(Stream::kAction, 1, 2, 3), Philox(5ULL << 32)(Stream::kAction, 1, 2, 3)};
  EXPECT_EQ(different.size(), 8U);
}

TEST(Philox, UniformNumbersStayBelowOne) {
  EXPECT_EQ(uniform(0), 0.0F);
  EXPECT_LT(uniform(~0U), 1.0F);
  EXPECT_EQ(below(~0U, 10), 9U);
  EXPECT_EQ(below(0, 10), 0U);
}

TEST(Philox, NormalNumbersHaveTheirMoments) {
  const Philox random(1);
  double sum = 0, squares = 0, fourth = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const auto bits = random(Stream::kAction, 0, static_cast<std::uint32_t>(i));
    for (const double z : normals(bits[0], bits[1])) {
      ASSERT_TRUE(std::isfinite(z));
      sum += z;
      squares += z * z;
      fourth += z * z * z * z;
    }
  }
  const double n = 2.0 * kDraws;
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_NEAR(fourth / n, 3, 0.1);
  EXPECT_TRUE(std::isfinite(normals(0, 0)[0]));
}

}  // namespace
}  // namespace shoal::learn
