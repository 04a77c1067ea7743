// The elementary functions as NumPy 2 computes them, where that differs from what a C++ compiler
// makes of the same line.
//
// float64: NumPy's scalar sin, cos and power are libm's, so std::sin and std::cos are equal to them
// bit for bit; a power is not, because compilers turn pow(x, 2) into x * x, which differs from
// libm's pow in the last bit once in a thousand. float32: NumPy has its own sine and cosine on
// processors with fused multiply-add (every x86-64 since 2013 and every aarch64); they differ from
// libm's sinf and cosf in the last bit.
#pragma once

#include <cmath>

namespace shoal::env::numpy {

/// `x ** exponent` of two numpy scalars: libm's pow, never simplified.
double power(double x, double exponent) noexcept;
float power(float x, float exponent) noexcept;

/// `x % divisor` of two float64 scalars: the result has the divisor's sign.
double remainder(double x, double divisor) noexcept;

/// numpy.sin and numpy.cos of a float32 in [-1000, 1000].
float sine(float x) noexcept;
float cosine(float x) noexcept;

}  // namespace shoal::env::numpy
