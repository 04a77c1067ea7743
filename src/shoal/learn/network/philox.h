// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", 2011).
//
// A number is a function of the seed and of what it is for, so it does not depend on who draws
// first, on how many workers there are, or on what was drawn before; there is no state to save.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace shoal::learn {

/// What random numbers are for: streams never overlap.
enum class Stream : std::uint8_t {
  kAction,
  kEvaluation,
  kShuffle,
  kInit,
  kReset,
  kActor,
  kReplay,
  kNoise
};

class Philox {
 public:
  explicit Philox(std::uint64_t seed) noexcept : seed_(seed) {}

  std::uint64_t seed() const noexcept { return seed_; }

  /// Four numbers of 32 bits for (stream, step, index, block); `step` has 56 bits.
  std::array<std::uint32_t, 4> operator()(Stream stream, std::uint64_t step, std::uint32_t index,
                                          std::uint32_t block = 0) const noexcept {
    std::array<std::uint32_t, 4> c{block, index, static_cast<std::uint32_t>(step),
                                   static_cast<std::uint32_t>(step >> 32 & 0xFFFFFFU) |
                                       static_cast<std::uint32_t>(stream) << 24};
    std::uint32_t k0 = static_cast<std::uint32_t>(seed_);
    std::uint32_t k1 = static_cast<std::uint32_t>(seed_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c[0];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c[2];
      c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
           static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    return c;
  }

 private:
  std::uint64_t seed_;
};

/// In [0, 1), 24 bits: exact in float.
inline float uniform(std::uint32_t bits) noexcept {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}

/// In [0, n), n <= 2^32.
inline std::uint32_t below(std::uint32_t bits, std::uint64_t n) noexcept {
  return static_cast<std::uint32_t>(std::uint64_t{bits} * n >> 32);
}

/// Two independent standard normal numbers (Box and Muller, 1958).
inline std::array<double, 2> normals(std::uint32_t a, std::uint32_t b) noexcept {
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 0.5) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(b) + 0.5) * 0x1p-32;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace shoal::learn
