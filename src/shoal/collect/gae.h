// Generalised advantage estimation (Schulman et al., 2016) over a [steps, envs] rollout.
//
//   delta[t] = reward[t] + gamma * bootstrap[t] - value[t]
//   advantage[t] = delta[t] + gamma * lambda * advantage[t + 1]     within an episode
//   returns[t] = advantage[t] + value[t]
//
// bootstrap[t] is next_value[t], or 0 where the step terminated. Nothing flows from t + 1 to t
// across the end of an episode nor out of a row that is not valid; such a row itself gets advantage
// 0 and returns equal to its value.
#pragma once

#include <cstdint>
#include <span>

namespace shoal::collect {

/// Borrowed arrays of [steps, envs] elements each, row-major.
struct GaeInput {
  int steps = 0;
  int envs = 0;
  std::span<const float> reward;
  std::span<const float> value;       // V(observation that the action was chosen from)
  std::span<const float> next_value;  // V(observation that the step led to, before any reset)
  std::span<const std::uint8_t> terminated;
  std::span<const std::uint8_t> truncated;
  std::span<const std::uint8_t> valid;  // 0: not a transition (autoreset row, dead worker)
  float gamma = 0.99F;
  float lambda = 0.95F;
  bool bootstrap_truncated = true;  // false: a truncated step counts as terminated
};

/// Writes `advantage` and `returns`, both [steps, envs].
void gae(const GaeInput& in, std::span<float> advantage, std::span<float> returns) noexcept;

}  // namespace shoal::collect
