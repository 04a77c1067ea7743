// The expected numbers are NumPy's (2.4.6) and, for powers, Python's math.pow on glibc.
#include "shoal/env/numpy_math.h"

#include <gtest/gtest.h>

#include <numbers>

namespace shoal::env::numpy {
namespace {

TEST(NumpyMath, PowerIsLibmsAndNotAProduct) {
  const double x = 0x1.ad8dfb259f52ep+4;
  EXPECT_EQ(x * x, 0x1.6862953d5ae80p+9);
  EXPECT_EQ(power(x, 2.0), 0x1.6862953d5ae81p+9);
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
