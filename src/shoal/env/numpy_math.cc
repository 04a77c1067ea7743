#include "shoal/env/numpy_math.h"

namespace shoal::env::numpy {
namespace {

/// Hides a value from the optimiser, which would otherwise expand pow() of a known exponent.
template <class T>
T opaque(T value) noexcept {
  asm("" : "+m"(value));
  return value;
}

/// Horner's rule with one rounding a step.
template <class... C>
float polynomial(float x, float first, C... rest) noexcept {
  float sum = first;
  ((sum = std::fma(sum, x, rest)), ...);
  return sum;
}

}  // namespace

double power(double x, double exponent) noexcept { return std::pow(x, opaque(exponent)); }
float power(float x, float exponent) noexcept { return std::pow(x, opaque(exponent)); }

double remainder(double x, double divisor) noexcept {
  double rest = std::fmod(x, divisor);
  if (rest == 0) return std::copysign(0.0, divisor);
  if ((divisor < 0) != (rest < 0)) rest += divisor;
  return rest;
}

float sin_small(float x) noexcept {
  const float x2 = x * x;
  const float p =
      polynomial(x2, 0x1.7d3bbcp-19F, -0x1.a06bbap-13F, 0x1.11119ap-07F, -0x1.555556p-03F);
  return std::fma(p * x2, x, x);
}

float cos_small(float x) noexcept {
  return polynomial(x * x, 0x1.98e616p-16F, -0x1.6c06dcp-10F, 0x1.55553cp-05F, -0x1p-01F, 1.0F);
}

}  // namespace shoal::env::numpy
