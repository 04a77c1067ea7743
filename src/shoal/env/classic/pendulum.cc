#include "shoal/env/classic/pendulum.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "shoal/env/numpy_math.h"
#include "shoal/os/error.h"

namespace shoal::env::classic {
namespace {

constexpr double kMaxSpeed = 8;
constexpr float kMaxTorque = 2;
constexpr double kSeconds = 0.05;
constexpr double kPi = std::numbers::pi;

/// numpy.clip: a NaN stays one.
template <class T>
T clip(T x, T low, T high) noexcept {
  if (x < low) return low;
  return x > high ? high : x;
}

double normalize(double angle) noexcept { return numpy::remainder(angle + kPi, 2 * kPi) - kPi; }

}  // namespace

Space Pendulum::observation_space() { return float_box({-1, -1, -kMaxSpeed}, {1, 1, kMaxSpeed}); }

Space Pendulum::action_space() { return float_box({-kMaxTorque}, {kMaxTorque}); }

void Pendulum::check_reset_options(const ResetOptions& options) {
  options.expect_only({"x_init", "y_init"});
  for (const char* const name : {"x_init", "y_init"}) {
    if (!(options.number(name, 1) >= 0)) {
      throw InvalidArgument(fmt::format("reset option \"{}\" must not be negative, it is {}", name,
                                        options.number(name, 1)));
    }
  }
}

void Pendulum::reset(NpRandom& random, std::span<float, kObservations> obs,
                     const ResetOptions& options) {
  const double angle = options.number("x_init", kPi);
  const double velocity = options.number("y_init", 1.0);
  angle_ = random.uniform(-angle, angle);
  velocity_ = random.uniform(-velocity, velocity);
  observe(obs);
}

Outcome Pendulum::step(Action action, std::span<float, kObservations> obs) {
  // The torque is a float32 and NumPy computes what involves only it and constants in float32.
  const float torque = clip(action[0], -kMaxTorque, kMaxTorque);
  const double cost = numpy::square(normalize(angle_)) + 0.1 * numpy::square(velocity_) +
                      static_cast<double>(0.001F * numpy::power(torque, 2.0F));
  const double gravity = 3 * g_ / 2.0 * std::sin(angle_);
  velocity_ = clip(velocity_ + (gravity + static_cast<double>(3.0F * torque)) * kSeconds,
                   -kMaxSpeed, kMaxSpeed);
  angle_ += velocity_ * kSeconds;
  observe(obs);
  return {.reward = -cost};
}

void Pendulum::observe(std::span<float, kObservations> obs) const {
  obs[0] = static_cast<float>(std::cos(angle_));
  obs[1] = static_cast<float>(std::sin(angle_));
  obs[2] = static_cast<float>(velocity_);
}

void Pendulum::set_state(std::span<const double> state) {
  angle_ = state[0];
  velocity_ = state[1];
}

}  // namespace shoal::env::classic
