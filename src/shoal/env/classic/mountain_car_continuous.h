// MountainCarContinuous as Gymnasium 1.4.0 has it: MountainCar with a continuous force that costs
// its square.
//
// Gymnasium keeps the state of a reset as float64 and that of a step as float32, and NumPy computes
// each step in the type of the state it starts from. So does this.
#pragma once

#include <span>
#include <vector>

#include "shoal/env/env.h"

namespace shoal::env::classic {

class MountainCarContinuous {
 public:
  using Action = std::span<const float, 1>;  // force, clipped to [-1, 1]
  static constexpr int kObservations = 2;    // position, velocity

  /// `goal_velocity`: the least velocity at the goal that counts.
  explicit MountainCarContinuous(double goal_velocity = 0) : goal_velocity_(goal_velocity) {}

  static Space observation_space();
  static Space action_space();

  /// Options "low" and "high", as Gymnasium takes them.
  static void check_reset_options(const ResetOptions& options);
  void reset(NpRandom& random, std::span<float, kObservations> obs,
             const ResetOptions& options = {});
  Outcome step(Action action, std::span<float, kObservations> obs);

  /// position, velocity. A state that float32 holds exactly is taken for that of a step, any other
  /// for that of a reset.
  std::vector<double> state() const { return {position_, velocity_}; }
  void set_state(std::span<const double> state);

 private:
  template <class Real>
  Outcome step_in(float action);

  double position_ = 0;
  double velocity_ = 0;
  double goal_velocity_;
  bool after_step_ = false;  // the state is float32
};

}  // namespace shoal::env::classic
