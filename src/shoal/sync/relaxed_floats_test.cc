#include "shoal/sync/relaxed_floats.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <thread>
#include <vector>

namespace shoal::sync {
namespace {

TEST(RelaxedFloats, GivesBackWhatWasStoredWhereItWasStored) {
  std::array<RelaxedFloats::Word, 4> words{};
  RelaxedFloats floats(words);
  ASSERT_EQ(floats.size(), 8U);
  floats.store(2, std::vector<float>{1.5F, -2.0F, 3.0F, 1e-30F});
  std::vector<float> all(8, 9.0F);
  floats.load(0, all);
  EXPECT_EQ(all, (std::vector<float>{0, 0, 1.5F, -2.0F, 3.0F, 1e-30F, 0, 0}));
  std::vector<float> some(2);
  floats.load(4, some);
  EXPECT_EQ(some, (std::vector<float>{3.0F, 1e-30F}));
}

// Each writer stores one number everywhere, so that a float of two writers' bytes would be another.
TEST(RelaxedFloats, EveryFloatIsOneThatSomebodyStored) {
  constexpr std::size_t kSize = 64;
  std::array<RelaxedFloats::Word, kSize / 2> words{};
  const std::vector<float> written{-1.0F, 3.1415927F, 1e20F, 7e-20F};
  std::vector<std::jthread> writers;
  for (const float number : written) {
    writers.emplace_back([&words, number](const std::stop_token& stop) {
      RelaxedFloats floats(words);
      const std::vector<float> all(kSize, number);
      while (!stop.stop_requested()) floats.store(0, all);
    });
  }
  const RelaxedFloats floats(words);
  std::vector<float> read(kSize);
  for (int k = 0; k < 20'000; ++k) {
    floats.load(0, read);
    for (const float f : read)
      ASSERT_TRUE(f == 0 || f == written[0] || f == written[1] || f == written[2] ||
                  f == written[3])
          << f;
  }
}

}  // namespace
}  // namespace shoal::sync
