// Pendulum as Gymnasium 1.4.0 has it: swing a pendulum up and hold it with bounded torque. Episodes
// end by time only.
#pragma once

#include <span>
#include <vector>

#include "shoal/env/env.h"

namespace shoal::env::classic {

class Pendulum {
 public:
  using Action = std::span<const float, 1>;  // torque [N m], clipped to [-2, 2]
  static constexpr int kObservations = 3;    // cos(angle), sin(angle), angular velocity [rad/s]

  /// `g`: acceleration of gravity [m/s^2].
  explicit Pendulum(double g = 10.0) : g_(g) {}

  static Space observation_space();
  static Space action_space();

  /// Options "x_init" and "y_init", as Gymnasium takes them.
  static void check_reset_options(const ResetOptions& options);
  void reset(NpRandom& random, std::span<float, kObservations> obs,
             const ResetOptions& options = {});
  Outcome step(Action action, std::span<float, kObservations> obs);

  /// angle (0: upright, not normalised), angular velocity.
  std::vector<double> state() const { return {angle_, velocity_}; }
  void set_state(std::span<const double> state);

 private:
  void observe(std::span<float, kObservations> obs) const;

  double angle_ = 0;
  double velocity_ = 0;
  double g_;
};

}  // namespace shoal::env::classic
