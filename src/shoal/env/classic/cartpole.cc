#include "shoal/env/classic/cartpole.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace shoal::env::classic {
namespace {

constexpr double kGravity = 9.8;
constexpr double kPoleMass = 0.1;
constexpr double kTotalMass = 0.1 + 1.0;
constexpr double kHalfLength = 0.5;
constexpr double kPoleMassLength = kPoleMass * kHalfLength;
constexpr double kForce = 10.0;
constexpr double kSeconds = 0.02;
constexpr double kAngleLimit = 12 * 2 * std::numbers::pi / 360;
constexpr double kPositionLimit = 2.4;

void observe(const std::array<double, 4>& state, std::span<float, 4> obs) {
  std::transform(state.begin(), state.end(), obs.begin(),
                 [](double v) { return static_cast<float>(v); });
}

}  // namespace

Space CartPole::observation_space() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  return float_box({-2 * kPositionLimit, -kInf, -2 * kAngleLimit, -kInf},
                   {2 * kPositionLimit, kInf, 2 * kAngleLimit, kInf});
}

Space CartPole::action_space() { return Discrete{kActions}; }

void CartPole::reset(NpRandom& random, std::span<float, kObservations> obs) {
  for (double& v : state_) v = random.uniform(-0.05, 0.05);
  fallen_ = false;
  observe(state_, obs);
}

Outcome CartPole::step(Action action, std::span<float, kObservations> obs) {
  auto& [x, x_dot, theta, theta_dot] = state_;
  const double force = action == 1 ? kForce : -kForce;
  const double cosine = std::cos(theta);
  const double sine = std::sin(theta);

  const double temp = (force + kPoleMassLength * (theta_dot * theta_dot) * sine) / kTotalMass;
  const double theta_acc = (kGravity * sine - cosine * temp) /
                           (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
  const double x_acc = temp - kPoleMassLength * theta_acc * cosine / kTotalMass;

  // Explicit Euler: positions advance with the velocities of before the step.
  x += kSeconds * x_dot;
  x_dot += kSeconds * x_acc;
  theta += kSeconds * theta_dot;
  theta_dot += kSeconds * theta_acc;
  observe(state_, obs);

  const bool terminated =
      x < -kPositionLimit || x > kPositionLimit || theta < -kAngleLimit || theta > kAngleLimit;
  return {.reward = reward(terminated), .terminated = terminated};
}

double CartPole::reward(bool terminated) {
  if (!terminated) return sutton_barto_reward_ ? 0.0 : 1.0;
  const bool again = fallen_;
  fallen_ = true;
  if (sutton_barto_reward_) return -1.0;
  return again ? 0.0 : 1.0;
}

void CartPole::set_state(std::span<const double> state) {
  std::copy(state.begin(), state.end(), state_.begin());
  fallen_ = false;
}

}  // namespace shoal::env::classic
