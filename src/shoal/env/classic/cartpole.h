// CartPole as Gymnasium 1.4.0 has it: balance a pole on a cart that is pushed left or right.
//
// Source of the dynamics: A. Barto, R. Sutton, C. Anderson, "Neuronlike Adaptive Elements That Can
// Solve Difficult Learning Control Problem", IEEE SMC 13 (1983); R. Florian, "Correct equations for
// the dynamics of the cart-pole system" (2007).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/env.h"

namespace shoal::env::classic {

class CartPole {
 public:
  using Action = std::int64_t;  // 0: push left, 1: push right
  static constexpr int kActions = 2;
  static constexpr int kObservations = 4;  // x [m], its velocity, angle [rad], its velocity

  /// `sutton_barto_reward`: -1 on failure and 0 before, instead of 1 for every step.
  /// `hide_velocities`: both are 0 in observations, so that one of them alone does not tell the state.
  explicit CartPole(bool sutton_barto_reward = false, bool hide_velocities = false)
      : sutton_barto_reward_(sutton_barto_reward), hide_velocities_(hide_velocities) {}

  static Space observation_space();
  static Space action_space();

  /// Options "low" and "high", as Gymnasium takes them.
  static void check_reset_options(const ResetOptions& options);
  void reset(NpRandom& random, std::span<float, kObservations> obs,
             const ResetOptions& options = {});
  Outcome step(Action action, std::span<float, kObservations> obs);

  /// Steps that many, their arithmetic in vector registers.
  static constexpr int kLanes = 16;
  static void step_lanes(CartPole* const* envs, const Action* actions, float* obs,
                         Outcome* outcomes);

  /// x, x_dot, theta, theta_dot.
  std::vector<double> state() const { return {state_.begin(), state_.end()}; }
  void set_state(std::span<const double> state);

 private:
  double reward(bool terminated);
  void observe(std::span<float, kObservations> obs) const;
  void hide(std::span<float, kObservations> obs) const;

  std::array<double, 4> state_{};
  bool sutton_barto_reward_;
  bool hide_velocities_;
  bool fallen_ = false;  // the episode's end was reported already
};

}  // namespace shoal::env::classic
