#include "shoal/env/classic/acrobot.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "shoal/env/numpy_math.h"

namespace shoal::env::classic {
namespace {

// Masses, lengths and moments of inertia are 1, centres of mass halfway: products with 1 are left
// out, since they are exact.
constexpr double kPi = std::numbers::pi;
constexpr double kCentre = 0.5;
constexpr double kGravity = 9.8;
constexpr double kSeconds = 0.2;
constexpr double kMaxVelocity1 = 4 * kPi;
constexpr double kMaxVelocity2 = 9 * kPi;

using State = std::array<double, 4>;

/// The time derivative of the state under `torque`.
State derivative(const State& s, double torque) {
  const auto [theta1, theta2, dtheta1, dtheta2] = s;
  const double cos2 = std::cos(theta2);
  const double sin2 = std::sin(theta2);
  const double d1 = kCentre * kCentre + (1 + kCentre * kCentre + 2 * kCentre * cos2) + 1.0 + 1.0;
  const double d2 = (kCentre * kCentre + kCentre * cos2) + 1.0;
  const double phi2 = kCentre * kGravity * std::cos(theta1 + theta2 - kPi / 2.0);
  const double phi1 = -kCentre * numpy::square(dtheta2) * sin2 -
                      2 * kCentre * dtheta2 * dtheta1 * sin2 +
                      (kCentre + 1) * kGravity * std::cos(theta1 - kPi / 2) + phi2;
  const double ddtheta2 =
      (torque + d2 / d1 * phi1 - kCentre * numpy::square(dtheta1) * sin2 - phi2) /
      (kCentre * kCentre + 1.0 - numpy::square(d2) / d1);
  const double ddtheta1 = -(d2 * ddtheta2 + phi1) / d1;
  return {dtheta1, dtheta2, ddtheta1, ddtheta2};
}

State advance(const State& from, double seconds, const State& slope) {
  State to;
  for (std::size_t i = 0; i < 4; ++i) to[i] = from[i] + seconds * slope[i];
  return to;
}

/// One step of the classical fourth-order Runge-Kutta method.
State runge_kutta(const State& s, double torque) {
  const State k1 = derivative(s, torque);
  const State k2 = derivative(advance(s, kSeconds / 2.0, k1), torque);
  const State k3 = derivative(advance(s, kSeconds / 2.0, k2), torque);
  const State k4 = derivative(advance(s, kSeconds, k3), torque);
  State slope;
  for (std::size_t i = 0; i < 4; ++i) slope[i] = k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i];
  return advance(s, kSeconds / 6.0, slope);
}

double wrap(double angle) {
  while (angle > kPi) angle -= 2 * kPi;
  while (angle < -kPi) angle += 2 * kPi;
  return angle;
}

std::pair<double, double> bounds(const ResetOptions& options) { return options.bounds(-0.1, 0.1); }

}  // namespace

Space Acrobot::observation_space() {
  return float_box({-1, -1, -1, -1, -kMaxVelocity1, -kMaxVelocity2},
                   {1, 1, 1, 1, kMaxVelocity1, kMaxVelocity2});
}

Space Acrobot::action_space() { return Discrete{kActions}; }

void Acrobot::check_reset_options(const ResetOptions& options) {
  options.expect_only({"low", "high"});
  static_cast<void>(bounds(options));
}

void Acrobot::reset(NpRandom& random, std::span<float, kObservations> obs,
                    const ResetOptions& options) {
  // Gymnasium keeps the first state as float32, so its first observation comes from NumPy's float32
  // functions.
  std::array<float, 4> first;
  const auto [low, high] = bounds(options);
  for (float& v : first) v = static_cast<float>(random.uniform(low, high));
  std::copy(first.begin(), first.end(), state_.begin());
  obs[0] = numpy::cosine(first[0]);
  obs[1] = numpy::sine(first[0]);
  obs[2] = numpy::cosine(first[1]);
  obs[3] = numpy::sine(first[1]);
  obs[4] = first[2];
  obs[5] = first[3];
}

Outcome Acrobot::step(Action action, std::span<float, kObservations> obs) {
  state_ = runge_kutta(state_, static_cast<double>(action - 1));
  auto& [theta1, theta2, velocity1, velocity2] = state_;
  theta1 = wrap(theta1);
  theta2 = wrap(theta2);
  velocity1 = std::min(std::max(velocity1, -kMaxVelocity1), kMaxVelocity1);
  velocity2 = std::min(std::max(velocity2, -kMaxVelocity2), kMaxVelocity2);

  const double cos1 = std::cos(theta1);
  obs[0] = static_cast<float>(cos1);
  obs[1] = static_cast<float>(std::sin(theta1));
  obs[2] = static_cast<float>(std::cos(theta2));
  obs[3] = static_cast<float>(std::sin(theta2));
  obs[4] = static_cast<float>(velocity1);
  obs[5] = static_cast<float>(velocity2);
  const bool terminated = -cos1 - std::cos(theta2 + theta1) > 1.0;
  return {.reward = terminated ? 0.0 : -1.0, .terminated = terminated};
}

void Acrobot::set_state(std::span<const double> state) {
  std::copy(state.begin(), state.end(), state_.begin());
}

}  // namespace shoal::env::classic
