#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace shoal::learn {

/// Whether none of them is infinite or NaN, which would spoil what is learned from it.
template <class T>
bool all_finite(std::span<const T> values) {
  return std::ranges::all_of(values, [](T value) { return std::isfinite(value); });
}

}  // namespace shoal::learn
