// V-trace (Espeholt et al., 2018, arXiv:1802.01561, section 4.1) over a [steps, envs] rollout: what
// its rows were worth to a policy other than the one that acted.
//
//   rho[t] = min(rho_bar, ratio[t]),  c[t] = lambda * min(c_bar, ratio[t])
//   delta[t] = rho[t] * (reward[t] + gamma * V[t + 1] - V[t])
//   target[t] = V[t] + delta[t] + gamma * c[t] * (target[t + 1] - V[t + 1])
//   advantage[t] = rho[t] * (reward[t] + gamma * target[t + 1] - V[t])
//
// V[t + 1] is next_value[t], or 0 where the step terminated. Where an episode or the rollout ends,
// V[t + 1] stands for target[t + 1], too. Nothing flows from t + 1 to t across such an end nor out
// of a row that is not valid; such a row itself gets advantage 0 and its value as its target.
//
// With ratios of 1, bars of at least 1 and lambda 1 the targets are n-step returns, and the
// advantages those of gae.h with lambda 1.
#pragma once

#include <cstdint>
#include <span>

namespace shoal::collect {

/// Borrowed arrays of [steps, envs] elements each, row-major.
struct VtraceInput {
  int steps = 0;
  int envs = 0;
  std::span<const float> log_ratio;  // log of the policy's probability of the action by that with
                                     // which it was taken
  std::span<const float> reward;
  std::span<const float> value;       // V(observation that the action was chosen from)
  std::span<const float> next_value;  // V(observation that the step led to, before any reset)
  std::span<const std::uint8_t> terminated;
  std::span<const std::uint8_t> truncated;
  std::span<const std::uint8_t> valid;  // 0: not a transition (autoreset row, dead worker)
  float gamma = 0.99F;
  float lambda = 1.0F;
  float rho_bar = 1.0F;
  float c_bar = 1.0F;
  bool bootstrap_truncated = true;  // false: a truncated step counts as terminated
};

/// Writes `advantage` and `target`, both [steps, envs].
void vtrace(const VtraceInput& in, std::span<float> advantage, std::span<float> target) noexcept;

}  // namespace shoal::collect
