#include "shoal/collect/gae.h"

#include <cstddef>

namespace shoal::collect {
namespace {

// One time step of all environments. Selections are written as arithmetic so that the loop
// vectorises.
void step_back(const GaeInput& in, std::size_t row, const float* next_advantage,
               float* __restrict advantage, float* __restrict returns) noexcept {
  const float* __restrict reward = in.reward.data() + row;
  const float* __restrict value = in.value.data() + row;
  const float* __restrict next_value = in.next_value.data() + row;
  const std::uint8_t* __restrict terminated = in.terminated.data() + row;
  const std::uint8_t* __restrict truncated = in.truncated.data() + row;
  const std::uint8_t* __restrict valid = in.valid.data() + row;
  const float gamma = in.gamma;
  const float gamma_lambda = in.gamma * in.lambda;
  const bool end_at_truncation = !in.bootstrap_truncated;
  for (int i = 0; i < in.envs; ++i) {
    const bool no_bootstrap = terminated[i] != 0 || (truncated[i] != 0 && end_at_truncation);
    const bool last = (terminated[i] | truncated[i]) != 0;
    const float bootstrap = no_bootstrap ? 0.0F : next_value[i];
    const float later = last ? 0.0F : next_advantage[i];
    const float delta = reward[i] + gamma * bootstrap - value[i];
    advantage[i] = valid[i] != 0 ? delta + gamma_lambda * later : 0.0F;
    returns[i] = advantage[i] + value[i];
  }
}

}  // namespace

void gae(const GaeInput& in, std::span<float> advantage, std::span<float> returns) noexcept {
  const auto envs = static_cast<std::size_t>(in.envs);
  for (int t = in.steps - 1; t >= 0; --t) {
    const std::size_t row = static_cast<std::size_t>(t) * envs;
    // Beyond the last step nothing is known but next_value; its own advantage row stands in with
    // zeros.
    if (t == in.steps - 1) {
      for (std::size_t i = 0; i < envs; ++i) advantage[row + i] = 0.0F;
    }
    const float* later = t == in.steps - 1 ? advantage.data() + row : advantage.data() + row + envs;
    step_back(in, row, later, advantage.data() + row, returns.data() + row);
  }
}

}  // namespace shoal::collect
