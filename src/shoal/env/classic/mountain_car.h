// MountainCar as Gymnasium 1.4.0 has it: rock an underpowered car out of a valley, pushing left,
// not at all, or right.
//
// Source: A. Moore, "Efficient Memory-Based Learning for Robot Control", PhD thesis, University of
// Cambridge (1990).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/env.h"

namespace shoal::env::classic {

class MountainCar {
 public:
  using Action = std::int64_t;  // push in direction action - 1
  static constexpr int kActions = 3;
  static constexpr int kObservations = 2;  // position, velocity

  /// `goal_velocity`: the least velocity at the goal that counts.
  explicit MountainCar(double goal_velocity = 0) : goal_velocity_(goal_velocity) {}

  static Space observation_space();
  static Space action_space();

  /// Options "low" and "high", as Gymnasium takes them.
  static void check_reset_options(const ResetOptions& options);
  void reset(NpRandom& random, std::span<float, kObservations> obs,
             const ResetOptions& options = {});
  Outcome step(Action action, std::span<float, kObservations> obs);

  /// position, velocity.
  std::vector<double> state() const { return {position_, velocity_}; }
  void set_state(std::span<const double> state);

 private:
  double position_ = 0;
  double velocity_ = 0;
  double goal_velocity_;
};

}  // namespace shoal::env::classic
