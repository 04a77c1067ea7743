// NumPy's default random generator, bit for bit: a seed gives a native environment the draws that
// it gives a Python one.
//
// Sources: M. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms
// for Random Number Generation", HMC-CS-2014-0905 (PCG64, XSL-RR output); M. O'Neill, "Developing a
// seed_seq Alternative", 2015 (SeedSequence); D. Lemire, "Fast Random Integer Generation in an
// Interval", ACM TOMACS 29 (2019) (bounded integers); NumPy's NEP 19 and reference manual for how
// numpy.random.Generator puts them together.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace shoal::env {

/// The stream of `numpy.random.Generator(numpy.random.PCG64(seed))`. A value: a copy continues from
/// the same place.
class NpRandom {
 public:
  /// Seeded from the operating system's entropy, as `default_rng()` is.
  NpRandom();
  explicit NpRandom(std::uint64_t seed) { this->seed(seed); }

  /// Begins the stream of `seed` anew.
  void seed(std::uint64_t seed);

  /// 64 random bits (`bit_generator.random_raw()`).
  std::uint64_t next_u64() noexcept {
    state_ = state_ * kMultiplier + increment_;
    const auto folded =
        static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const auto turn = static_cast<unsigned>(state_ >> 122);
    return (folded >> turn) | (folded << ((64U - turn) & 63U));
  }

  /// 32 random bits: the low half of a draw, then its high half.
  std::uint32_t next_u32() noexcept {
    if (kept_half_) {
      const std::uint32_t half = *kept_half_;
      kept_half_.reset();
      return half;
    }
    const std::uint64_t both = next_u64();
    kept_half_ = static_cast<std::uint32_t>(both >> 32);
    return static_cast<std::uint32_t>(both);
  }

  /// Uniform in [0, 1), 53 random bits (`Generator.random()`).
  double random() noexcept { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }

  /// Uniform in [low, high) (`Generator.uniform(low, high)`).
  double uniform(double low, double high) noexcept { return low + (high - low) * random(); }

  /// Uniform integer in [low, high) (`Generator.integers(low, high)`, dtype int64). Throws
  /// InvalidArgument if low >= high.
  std::int64_t integers(std::int64_t low, std::int64_t high);

 private:
  __extension__ using U128 = unsigned __int128;
  static constexpr U128 kMultiplier = (U128{0x2360ED051FC65DA4} << 64) | 0x4385DF649FCCF645;

  void seed_with(std::array<std::uint32_t, 4> entropy, int words);

  U128 state_ = 0;
  U128 increment_ = 1;
  std::optional<std::uint32_t> kept_half_;
};

}  // namespace shoal::env
