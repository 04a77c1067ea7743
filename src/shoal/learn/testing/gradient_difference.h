// For tests: how near two gradients must be.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "shoal/learn/network/parameters.h"
#include "shoal/learn/optimizer/optimizer.h"

namespace shoal::learn {

/// To `tolerance` of the norm of each parameter's gradient, so that small ones count as much as large ones.
inline void expect_same_gradient(const Parameters& parameters, const std::vector<float>& ours,
                                 const std::vector<float>& theirs, double tolerance = 1e-5) {
  for (const auto& p : parameters.list()) {
    const auto a = std::span(ours).subspan(p.offset, p.numel());
    const auto b = std::span(theirs).subspan(p.offset, p.numel());
    std::vector<float> difference(p.numel());
    for (std::size_t k = 0; k < p.numel(); ++k) difference[k] = a[k] - b[k];
    EXPECT_LE(norm(difference), tolerance * norm(b)) << p.name;
    EXPECT_TRUE(std::isfinite(norm(b))) << p.name;
  }
}

}  // namespace shoal::learn
