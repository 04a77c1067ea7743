// Acrobot as Gymnasium 1.4.0 has it ("book" dynamics): swing the tip of a two-link chain above a
// bar by torque on the joint between the links.
//
// Source: R. Sutton, A. Barto, "Reinforcement Learning: An Introduction", section 11.3 of the first
// edition.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/env/env.h"

namespace shoal::env::classic {

class Acrobot {
 public:
  using Action = std::int64_t;  // torque of action - 1 [N m]
  static constexpr int kActions = 3;
  static constexpr int kObservations =
      6;  // cos, sin of angle 1; cos, sin of angle 2; their velocities [rad/s]

  static Space observation_space();
  static Space action_space();

  /// Options "low" and "high", as Gymnasium takes them.
  static void check_reset_options(const ResetOptions& options);
  void reset(NpRandom& random, std::span<float, kObservations> obs,
             const ResetOptions& options = {});
  Outcome step(Action action, std::span<float, kObservations> obs);

  /// theta1 (0: hanging), theta2 (relative to link 1), their velocities.
  std::vector<double> state() const { return {state_.begin(), state_.end()}; }
  void set_state(std::span<const double> state);

 private:
  std::array<double, 4> state_{};
};

}  // namespace shoal::env::classic
