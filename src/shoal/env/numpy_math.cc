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

float sine_of_rest(float x) noexcept {
  const float x2 = x * x;
  const float p =
      polynomial(x2, 0x1.7d3bbcp-19F, -0x1.a06bbap-13F, 0x1.11119ap-07F, -0x1.555556p-03F);
  return std::fma(p * x2, x, x);
}

float cosine_of_rest(float x) noexcept {
  return polynomial(x * x, 0x1.98e616p-16F, -0x1.6c06dcp-10F, 0x1.55553cp-05F, -0x1p-01F, 1.0F);
}

/// The sine of x and `quarters` quarter turns: x is reduced to at most an eighth turn by
/// subtracting quarter turns, pi/2 in three parts (Cody and Waite).
float turned(float x, int quarters) noexcept {
  const float turns = std::nearbyint(x * 0x1.45f306p-01F);
  float rest = std::fma(turns, -0x1.921fb0p+00F, x);
  rest = std::fma(turns, -0x1.5110b4p-22F, rest);
  rest = std::fma(turns, -0x1.846988p-48F, rest);
  const int quadrant = static_cast<int>(turns) + quarters;
  const float value = (quadrant & 1) == 0 ? sine_of_rest(rest) : cosine_of_rest(rest);
  return (quadrant & 2) == 0 ? value : -value;
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

float sine(float x) noexcept { return turned(x, 0); }
float cosine(float x) noexcept { return turned(x, 1); }

}  // namespace shoal::env::numpy
