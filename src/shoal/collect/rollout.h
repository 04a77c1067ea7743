// The experience of one iteration: preallocated arrays, time first.
//
// Row t holds what happened when action(t) was taken in obs(t). obs has one row more than the rest:
// obs(steps) is where the rollout ends, and where the next one begins. Element (t, i) of every
// array belongs to environment i.
//
// Threads: none of its own; views borrow until the Rollout is destroyed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/shm/tensor.h"

namespace shoal::collect {

class Rollout {
 public:
  /// `obs` and `action` are the specs of one environment's row.
  Rollout(int steps, int envs, const std::vector<shm::TensorSpec>& obs,
          const shm::TensorSpec& action);
  Rollout(Rollout&&) noexcept = default;  // views go with it
  Rollout& operator=(Rollout&&) noexcept = default;

  int steps() const noexcept { return steps_; }
  int envs() const noexcept { return envs_; }
  /// steps * envs.
  std::size_t size() const noexcept { return reward_.size(); }

  /// The leaves of all observations at time t in [0, steps], [envs, ...] each.
  std::span<const shm::TensorView> obs(int t) const noexcept {
    return obs_at_[static_cast<std::size_t>(t)];
  }
  /// The same for all t < steps as one array of steps * envs rows.
  std::span<const shm::TensorView> obs() const noexcept { return obs_all_; }

  shm::TensorView action(int t) const noexcept;
  shm::TensorView action() const noexcept;

  // [envs] elements of one time step; without t, all steps * envs.
  std::span<float> reward(int t) noexcept { return row(reward_, t); }
  std::span<float> value(int t) noexcept { return row(value_, t); }
  std::span<float> next_value(int t) noexcept {
    return row(next_value_, t);
  }  // V of where the step led, before a reset
  std::span<float> logp(int t) noexcept { return row(logp_, t); }
  std::span<std::uint8_t> terminated(int t) noexcept { return row(terminated_, t); }
  std::span<std::uint8_t> truncated(int t) noexcept { return row(truncated_, t); }
  std::span<std::uint8_t> valid(int t) noexcept { return row(valid_, t); }  // 0: not a transition

  std::span<float> reward() noexcept { return reward_; }
  std::span<float> value() noexcept { return value_; }
  std::span<float> next_value() noexcept { return next_value_; }
  std::span<float> logp() noexcept { return logp_; }
  std::span<std::uint8_t> terminated() noexcept { return terminated_; }
  std::span<std::uint8_t> truncated() noexcept { return truncated_; }
  std::span<std::uint8_t> valid() noexcept { return valid_; }

  /// Copies obs(steps) to obs(0).
  void carry_over() noexcept;

  /// Nothing has come from time t on: those rows are not valid, and obs(t) is where it ends.
  void end_at(int t) noexcept;

  /// Whether obs(t + 1) after an episode's end is another episode's first (same-step autoreset). Then
  /// next_value(t) is what was found while it was there.
  void replace_ends(bool replaced) noexcept { ends_are_replaced_ = replaced; }
  bool ends_are_replaced() const noexcept { return ends_are_replaced_; }
  /// Every other next_value(t) is value(t + 1), or in the end `last`, the values of obs(steps).
  void link_values(std::span<const float> last) noexcept;

  /// The indices t * envs + i of the valid rows, ascending.
  std::vector<std::int32_t> valid_rows() const;

 private:
  template <class T>
  std::span<T> row(std::vector<T>& all, int t) noexcept {
    return std::span<T>(all).subspan(static_cast<std::size_t>(t) * static_cast<std::size_t>(envs_),
                                     static_cast<std::size_t>(envs_));
  }

  int steps_;
  int envs_;
  bool ends_are_replaced_ = false;
  std::vector<std::vector<std::byte>> obs_bytes_;
  std::vector<std::vector<shm::TensorView>> obs_at_;
  std::vector<shm::TensorView> obs_all_;
  mutable std::vector<std::byte> action_bytes_;
  shm::TensorSpec action_spec_;
  std::vector<float> reward_, value_, next_value_, logp_;
  std::vector<std::uint8_t> terminated_, truncated_, valid_;
};

}  // namespace shoal::collect
