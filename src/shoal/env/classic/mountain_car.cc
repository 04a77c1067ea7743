#include "shoal/env/classic/mountain_car.h"

#include <algorithm>
#include <cmath>

namespace shoal::env::classic {
namespace {

constexpr double kLeft = -1.2;
constexpr double kRight = 0.6;
constexpr double kMaxSpeed = 0.07;
constexpr double kGoal = 0.5;
constexpr double kForce = 0.001;
constexpr double kGravity = 0.0025;

std::pair<double, double> bounds(const ResetOptions& options) { return options.bounds(-0.6, -0.4); }

}  // namespace

Space MountainCar::observation_space() {
  return float_box({kLeft, -kMaxSpeed}, {kRight, kMaxSpeed});
}

Space MountainCar::action_space() { return Discrete{kActions}; }

void MountainCar::check_reset_options(const ResetOptions& options) {
  options.expect_only({"low", "high"});
  static_cast<void>(bounds(options));
}

void MountainCar::reset(NpRandom& random, std::span<float, kObservations> obs,
                        const ResetOptions& options) {
  const auto [low, high] = bounds(options);
  position_ = random.uniform(low, high);
  velocity_ = 0;
  obs[0] = static_cast<float>(position_);
  obs[1] = 0;
}

Outcome MountainCar::step(Action action, std::span<float, kObservations> obs) {
  velocity_ += static_cast<double>(action - 1) * kForce + std::cos(3 * position_) * -kGravity;
  velocity_ = std::clamp(velocity_, -kMaxSpeed, kMaxSpeed);
  position_ = std::clamp(position_ + velocity_, kLeft, kRight);
  if (position_ == kLeft && velocity_ < 0) velocity_ = 0;
  obs[0] = static_cast<float>(position_);
  obs[1] = static_cast<float>(velocity_);
  return {.reward = -1.0, .terminated = position_ >= kGoal && velocity_ >= goal_velocity_};
}

void MountainCar::set_state(std::span<const double> state) {
  position_ = state[0];
  velocity_ = state[1];
}

}  // namespace shoal::env::classic
