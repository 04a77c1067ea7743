// The elementary functions as NumPy 2 computes them, where that differs from what a C++ compiler
// makes of the same line.
//
// float64: NumPy's scalar sin, cos and power are libm's, so std::sin and std::cos are equal to them
// bit for bit; a power is not, because compilers turn pow(x, 2) into x * x, which differs from
// libm's pow in the last bit once in a thousand. float32: NumPy has its own sine and cosine on
// processors with fused multiply-add (every x86-64 since 2013 and every aarch64); they differ from
// libm's sinf and cosf in the last bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace shoal::env::numpy {

/// `x ** exponent` of two numpy scalars: libm's pow, never simplified.
double power(double x, double exponent) noexcept;
float power(float x, float exponent) noexcept;

/// power(x, 2), bit for bit, without libm for nine in ten numbers.
///
/// x * x is off its exact value by a part of a unit in the last place that can be computed (T.
/// Dekker, "A floating-point technique for extending the available precision", 1971). libm's pow is
/// off by at most 0.55 units (glibc: 0.54), so it must round to x * x wherever that is off by less
/// than 0.45.
inline double square(double x) noexcept {
  const double product = x * x;
  const double split = 0x1.0000002p27 * x;  // the upper half of x's digits
  const double high = split - (split - x);
  const double low = x - high;
  const double off = ((high * high - product) + 2 * high * low) + low * low;
  const auto bits = std::bit_cast<std::uint64_t>(product);
  constexpr std::uint64_t kExponent = 0x7ff0'0000'0000'0000;
  const double limit = 0.45 * 0x1p-52 * std::bit_cast<double>(bits & kExponent);
  // Where halves neither overflow nor vanish. Below a power of two the units are smaller.
  const bool certain =
      product > 0x1p-600 && product < 0x1p+900 && std::abs(off) < limit && (bits & ~kExponent) != 0;
  return certain ? product : power(x, 2.0);
}

/// `x % divisor` of two float64 scalars: the result has the divisor's sign.
double remainder(double x, double divisor) noexcept;

/// numpy.sin and numpy.cos of a float32 in [-1000, 1000].
float sine(float x) noexcept;
float cosine(float x) noexcept;

}  // namespace shoal::env::numpy
