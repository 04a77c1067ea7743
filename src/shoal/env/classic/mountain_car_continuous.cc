#include "shoal/env/classic/mountain_car_continuous.h"

#include <cmath>

namespace shoal::env::classic {
namespace {

constexpr double kLeft = -1.2;
constexpr double kRight = 0.6;
constexpr double kMaxSpeed = 0.07;
constexpr double kGoal = 0.45;
constexpr double kPower = 0.0015;

/// Engine minus slope. An action within bounds is a float32 and drags the sum to float32; a clipped
/// one is a Python float.
template <class Real>
Real push(float action, Real position) {
  const double slope = 0.0025 * std::cos(static_cast<double>(3 * position));
  if (action < -1.0F) return static_cast<Real>(-1.0 * kPower - slope);
  if (action > 1.0F) return static_cast<Real>(1.0 * kPower - slope);
  return action * static_cast<float>(kPower) - static_cast<float>(slope);
}

std::pair<double, double> bounds(const ResetOptions& options) { return options.bounds(-0.6, -0.4); }

}  // namespace

Space MountainCarContinuous::observation_space() {
  return float_box({kLeft, -kMaxSpeed}, {kRight, kMaxSpeed});
}

Space MountainCarContinuous::action_space() { return float_box({-1}, {1}); }

void MountainCarContinuous::check_reset_options(const ResetOptions& options) {
  options.expect_only({"low", "high"});
  static_cast<void>(bounds(options));
}

void MountainCarContinuous::reset(NpRandom& random, std::span<float, kObservations> obs,
                                  const ResetOptions& options) {
  const auto [low, high] = bounds(options);
  position_ = random.uniform(low, high);
  velocity_ = 0;
  after_step_ = false;
  obs[0] = static_cast<float>(position_);
  obs[1] = 0;
}

template <class Real>
Outcome MountainCarContinuous::step_in(float action) {
  constexpr auto kReal = [](double v) { return static_cast<Real>(v); };
  Real position = kReal(position_);
  Real velocity = kReal(velocity_);

  velocity += push<Real>(action, position);
  if (velocity > kReal(kMaxSpeed)) velocity = kReal(kMaxSpeed);
  if (velocity < kReal(-kMaxSpeed)) velocity = kReal(-kMaxSpeed);
  position += velocity;
  if (position > kReal(kRight)) position = kReal(kRight);
  if (position < kReal(kLeft)) position = kReal(kLeft);
  if (position == kReal(kLeft) && velocity < 0) velocity = 0;

  position_ = static_cast<float>(position);
  velocity_ = static_cast<float>(velocity);
  after_step_ = true;
  const bool terminated = position >= kReal(kGoal) && velocity >= kReal(goal_velocity_);
  const double effort = static_cast<double>(action) * static_cast<double>(action) * 0.1;
  return {.reward = (terminated ? 100.0 : 0.0) - effort, .terminated = terminated};
}

Outcome MountainCarContinuous::step(Action action, std::span<float, kObservations> obs) {
  const Outcome outcome = after_step_ ? step_in<float>(action[0]) : step_in<double>(action[0]);
  obs[0] = static_cast<float>(position_);
  obs[1] = static_cast<float>(velocity_);
  return outcome;
}

void MountainCarContinuous::set_state(std::span<const double> state) {
  position_ = state[0];
  velocity_ = state[1];
  after_step_ =
      position_ == static_cast<float>(position_) && velocity_ == static_cast<float>(velocity_);
}

}  // namespace shoal::env::classic
