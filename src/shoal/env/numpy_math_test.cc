// The expected numbers are NumPy's (2.4.6) and, for powers, Python's math.pow on glibc.
#include "shoal/env/numpy_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <random>

namespace shoal::env::numpy {
namespace {

TEST(NumpyMath, PowerIsLibmsAndNotAProduct) {
  const double x = 0x1.ad8dfb259f52ep+4;
  EXPECT_EQ(x * x, 0x1.6862953d5ae80p+9);
  EXPECT_EQ(power(x, 2.0), 0x1.6862953d5ae81p+9);
}

TEST(NumpyMath, ASquareIsLibmsPower) {
  EXPECT_EQ(square(0x1.ad8dfb259f52ep+4), 0x1.6862953d5ae81p+9);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double x : {0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e-200, 1e-160, 1e150, 1e200, kInf}) {
    EXPECT_EQ(square(x), power(x, 2.0)) << x;
  }
  EXPECT_TRUE(std::isnan(square(std::numeric_limits<double>::quiet_NaN())));
  std::mt19937_64 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const double x = std::ldexp(std::uniform_real_distribution(-1.0, 1.0)(random),
                                static_cast<int>(i % 64) - 32);
    ASSERT_EQ(square(x), power(x, 2.0)) << x;
  }
  // Next to powers of two, and to where a product lies between two numbers.
  for (double x = 1; x < 1 + 1e-12; x = std::nextafter(x, 2.0)) {
    for (const double y : {x, 2 - x, x * std::numbers::sqrt2})
      ASSERT_EQ(square(y), power(y, 2.0)) << y;
  }
}

TEST(NumpyMath, SineAndCosineAreNumPysFloat32Ones) {
  EXPECT_EQ(sine(0.1F), 0x1.98eaeep-4F);
  EXPECT_EQ(sine(-0.05F), -0x1.996deap-5F);
  EXPECT_EQ(sine(0.7F), 0x1.49d6e6p-1F);
  EXPECT_EQ(cosine(0.1F), 0x1.fd713p-1F);
  EXPECT_EQ(cosine(-0.05F), 0x1.ff5c32p-1F);
  EXPECT_EQ(cosine(0.7F), 0x1.879966p-1F);
  EXPECT_EQ(sine(0.0F), 0.0F);
  EXPECT_EQ(cosine(0.0F), 1.0F);
  EXPECT_EQ(sine(3.0F), 0x1.210386p-3F);
  EXPECT_EQ(cosine(3.0F), -0x1.fae04cp-1F);
  EXPECT_EQ(sine(-30.5F), 0x1.9614c6p-1F);
  EXPECT_EQ(cosine(-30.5F), 0x1.37d63p-1F);
}

TEST(NumpyMath, RemainderHasTheSignOfTheDivisor) {
  EXPECT_EQ(remainder(7.0, 3.0), 1.0);
  EXPECT_EQ(remainder(-7.0, 3.0), 2.0);
  EXPECT_EQ(remainder(7.0, -3.0), -2.0);
  EXPECT_EQ(remainder(-6.0, 3.0), 0.0);
  EXPECT_FALSE(std::signbit(remainder(-6.0, 3.0)));
  const double turn = 2 * std::numbers::pi;
  EXPECT_EQ(remainder(turn, turn), 0.0);
}

}  // namespace
}  // namespace shoal::env::numpy
