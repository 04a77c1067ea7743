// bfloat16: the upper half of a float, so its range with 8 significant bits. Numbers are kept as pairs,
// for the processor multiplies two at a time: the first of a pair in the lower half.
#pragma once

#include <bit>
#include <cstdint>

namespace shoal::learn {

using Bfloat16Pair = std::uint32_t;

/// The bits of the nearest bfloat16, of two as near the one whose last bit is 0. No number stays none.
constexpr std::uint16_t to_bfloat16(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

constexpr float from_bfloat16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

constexpr Bfloat16Pair bfloat16_pair(float first, float second) noexcept {
  return Bfloat16Pair{to_bfloat16(second)} << 16 | to_bfloat16(first);
}

}  // namespace shoal::learn
