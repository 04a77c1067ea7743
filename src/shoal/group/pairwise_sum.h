// The one order in which parts are added: in pairs, in pairs of pairs, and so on.
//
//   of 2: 0+1        of 3: (0+1)+2        of 4: (0+1)+(2+3)        of 6: ((0+1)+(2+3))+(4+5)
//
// Parts that stand in line and are a power of two can be added first, wherever they are: that
// changes no bit. So one rank with eight parts, two with four and eight with one come to the same
// sum.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>

namespace shoal::group {

/// Where the parts are parted: the largest power of two below `parts`, of which there are two or
/// more.
constexpr std::size_t left_of(std::size_t parts) noexcept { return std::bit_floor(parts - 1); }

inline constexpr std::size_t kSumBlock =
    256;  // elements that are added at a time: they stay in the cache

/// Elements [from, from + count), at most kSumBlock, of all parts into `out`.
template <class T>
void add_block(std::span<const T* const> parts, std::size_t from, std::size_t count, T* out) {
  if (parts.size() == 1) {
    std::copy_n(parts[0] + from, count, out);
    return;
  }
  const std::size_t left = left_of(parts.size());
  std::array<T, kSumBlock> right;
  add_block(parts.first(left), from, count, out);
  add_block(parts.subspan(left), from, count, right.data());
  for (std::size_t i = 0; i < count; ++i) out[i] += right[i];
}

/// Elements [from, to) of all parts into out[from …]. `out` may be one of the parts.
template <class T>
void add_parts(std::span<const T* const> parts, std::size_t from, std::size_t to, T* out) {
  std::array<T, kSumBlock> sum;
  for (; from < to; from += kSumBlock) {
    const std::size_t count = std::min(kSumBlock, to - from);
    add_block(parts, from, count, sum.data());
    std::copy_n(sum.data(), count, out + from);
  }
}

}  // namespace shoal::group
