// For tests: numbers to compute with, and how near two results must be.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace shoal::learn {

/// From a normal distribution.
inline std::vector<float> random_floats(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (auto& x : out) x = normal(random);
  return out;
}

/// Element by element; `tolerance` is relative above 1 and absolute below.
inline void expect_near(const std::vector<float>& ours, const std::vector<float>& theirs,
                        double tolerance, const char* what = "") {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (std::size_t i = 0; i < ours.size(); ++i)
    ASSERT_NEAR(ours[i], theirs[i], tolerance * (1 + std::abs(theirs[i]))) << what << " " << i;
}

}  // namespace shoal::learn
