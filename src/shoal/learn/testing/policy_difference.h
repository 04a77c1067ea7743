// For tests: how far two learners' policies are apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "shoal/learn/checkpoint/learner_state.h"

namespace shoal::learn {

/// The largest difference of a parameter.
inline double policy_difference(const LearnerState& a, const LearnerState& b) {
  double largest = 0;
  for (std::size_t p = 0; p < a.policy.size(); ++p) {
    const auto* x = reinterpret_cast<const float*>(a.policy[p].bytes.data());
    const auto* y = reinterpret_cast<const float*>(b.policy[p].bytes.data());
    for (std::int64_t k = 0; k < a.policy[p].spec.numel(); ++k)
      largest = std::max(largest, static_cast<double>(std::abs(x[k] - y[k])));
  }
  return largest;
}

}  // namespace shoal::learn
