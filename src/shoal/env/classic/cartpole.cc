#include "shoal/env/classic/cartpole.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

// The best instructions that the processor has, chosen when the program is loaded; sanitizers do
// not run before that.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define SHOAL_FOR_EACH_CPU [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define SHOAL_FOR_EACH_CPU
#endif

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

std::pair<double, double> bounds(const ResetOptions& options) {
  return options.bounds(-0.05, 0.05);
}

struct Accelerations {
  double x, theta;
};

[[gnu::always_inline]] inline Accelerations accelerations(double force, double theta_dot,
                                                          double sine, double cosine) {
  const double temp = (force + kPoleMassLength * (theta_dot * theta_dot) * sine) / kTotalMass;
  const double theta_acc = (kGravity * sine - cosine * temp) /
                           (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
  return {temp - kPoleMassLength * theta_acc * cosine / kTotalMass, theta_acc};
}

[[gnu::always_inline]] inline bool out_of_bounds(double x, double theta) {
  return (x < -kPositionLimit) | (x > kPositionLimit) | (theta < -kAngleLimit) |
         (theta > kAngleLimit);
}

/// The states of kLanes environments, component by component.
struct Lanes {
  double x[CartPole::kLanes];
  double x_dot[CartPole::kLanes];
  double theta[CartPole::kLanes];
  double theta_dot[CartPole::kLanes];
};

// The same operations as one after the other, so the same bits; libm's sine and cosine are scalar,
// since those of vector libraries differ in the last bit.
SHOAL_FOR_EACH_CPU void advance(Lanes& s, const std::int64_t* actions, float* obs, bool* over) {
  double sine[CartPole::kLanes], cosine[CartPole::kLanes];
  for (int k = 0; k < CartPole::kLanes; ++k) {
    sine[k] = std::sin(s.theta[k]);
    cosine[k] = std::cos(s.theta[k]);
  }
  for (int k = 0; k < CartPole::kLanes; ++k) {
    const double force = actions[k] == 1 ? kForce : -kForce;
    const Accelerations acc = accelerations(force, s.theta_dot[k], sine[k], cosine[k]);
    s.x[k] += kSeconds * s.x_dot[k];
    s.x_dot[k] += kSeconds * acc.x;
    s.theta[k] += kSeconds * s.theta_dot[k];
    s.theta_dot[k] += kSeconds * acc.theta;
  }
  for (int k = 0; k < CartPole::kLanes; ++k) {
    obs[4 * k] = static_cast<float>(s.x[k]);
    obs[4 * k + 1] = static_cast<float>(s.x_dot[k]);
    obs[4 * k + 2] = static_cast<float>(s.theta[k]);
    obs[4 * k + 3] = static_cast<float>(s.theta_dot[k]);
    over[k] = out_of_bounds(s.x[k], s.theta[k]);
  }
}

}  // namespace

Space CartPole::observation_space() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  return float_box({-2 * kPositionLimit, -kInf, -2 * kAngleLimit, -kInf},
                   {2 * kPositionLimit, kInf, 2 * kAngleLimit, kInf});
}

Space CartPole::action_space() { return Discrete{kActions}; }

void CartPole::check_reset_options(const ResetOptions& options) {
  options.expect_only({"low", "high"});
  static_cast<void>(bounds(options));
}

void CartPole::reset(NpRandom& random, std::span<float, kObservations> obs,
                     const ResetOptions& options) {
  const auto [low, high] = bounds(options);
  for (double& v : state_) v = random.uniform(low, high);
  fallen_ = false;
  observe(obs);
}

void CartPole::observe(std::span<float, kObservations> obs) const {
  std::transform(state_.begin(), state_.end(), obs.begin(),
                 [](double v) { return static_cast<float>(v); });
  hide(obs);
}

void CartPole::hide(std::span<float, kObservations> obs) const {
  if (hide_velocities_) obs[1] = obs[3] = 0.0F;
}

Outcome CartPole::step(Action action, std::span<float, kObservations> obs) {
  auto& [x, x_dot, theta, theta_dot] = state_;
  const double force = action == 1 ? kForce : -kForce;
  const double cosine = std::cos(theta);
  const double sine = std::sin(theta);

  const Accelerations acc = accelerations(force, theta_dot, sine, cosine);

  // Explicit Euler: positions advance with the velocities of before the step.
  x += kSeconds * x_dot;
  x_dot += kSeconds * acc.x;
  theta += kSeconds * theta_dot;
  theta_dot += kSeconds * acc.theta;
  observe(obs);

  const bool terminated = out_of_bounds(x, theta);
  return {.reward = reward(terminated), .terminated = terminated};
}

void CartPole::step_lanes(CartPole* const* envs, const Action* actions, float* obs,
                          Outcome* outcomes) {
  Lanes lanes;
  for (int k = 0; k < kLanes; ++k) {
    lanes.x[k] = envs[k]->state_[0];
    lanes.x_dot[k] = envs[k]->state_[1];
    lanes.theta[k] = envs[k]->state_[2];
    lanes.theta_dot[k] = envs[k]->state_[3];
  }
  bool over[kLanes];
  advance(lanes, actions, obs, over);
  for (int k = 0; k < kLanes; ++k) {
    envs[k]->state_ = {lanes.x[k], lanes.x_dot[k], lanes.theta[k], lanes.theta_dot[k]};
    envs[k]->hide(std::span<float, kObservations>(obs + k * kObservations, kObservations));
    outcomes[k] = {.reward = envs[k]->reward(over[k]), .terminated = over[k]};
  }
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
