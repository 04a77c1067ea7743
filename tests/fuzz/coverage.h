// Which places of the program the last input reached, and what it was compared with.
//
// Builds with SHOAL_FUZZ have the compiler call the functions at the end of coverage.cc from every basic
// block and every comparison. In other builds nothing is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shoal::fuzz {

/// Two numbers of `bytes` bytes that were compared and differed; the constant of the two is the second.
struct Comparison {
  std::uint64_t one = 0;
  std::uint64_t other = 0;
  std::size_t bytes = 0;
};

/// Of this process; all functions are the driver's own thread's.
class Coverage {
 public:
  /// Forgets the last input.
  static void begin() noexcept;
  /// Whether the input since begin() reached a place, or reached it more often, than any before; remembers it.
  static bool is_new() noexcept;
  /// How many places were reached, ever.
  static std::size_t places() noexcept;
  /// The last comparisons.
  static std::span<const Comparison> comparisons() noexcept;
};

}  // namespace shoal::fuzz
