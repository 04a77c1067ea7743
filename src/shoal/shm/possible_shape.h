// Whether there can be an array of a shape that came from elsewhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "shoal/shm/tensor.h"

namespace shoal::shm {

/// A TiB: larger ones are mistakes.
inline constexpr std::uint64_t kMostArrayBytes = std::uint64_t{1} << 40;

/// The bytes of such an array with a 1 in the place of each 0 in its shape, which makes nothing
/// possible that would not be without it. Nothing where it has extents below 0, or is too large.
inline std::optional<std::uint64_t> possible_bytes(const TensorSpec& spec) noexcept {
  std::uint64_t bytes = itemsize(spec.dtype);
  for (const std::int64_t extent : spec.shape) {
    const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(extent, 1));
    if (extent < 0 || __builtin_mul_overflow(bytes, factor, &bytes) || bytes > kMostArrayBytes)
      return std::nullopt;
  }
  return bytes;
}

}  // namespace shoal::shm
