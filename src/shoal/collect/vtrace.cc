#include "shoal/collect/vtrace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace shoal::collect {

void vtrace(const VtraceInput& in, std::span<float> advantage, std::span<float> target) noexcept {
  const auto envs = static_cast<std::size_t>(in.envs);
  for (int t = in.steps - 1; t >= 0; --t) {
    for (std::size_t i = 0; i < envs; ++i) {
      const std::size_t row = static_cast<std::size_t>(t) * envs + i;
      const float value = in.value[row];
      advantage[row] = 0.0F;
      target[row] = value;
      if (in.valid[row] == 0) continue;
      const bool terminated =
          in.terminated[row] != 0 || (in.truncated[row] != 0 && !in.bootstrap_truncated);
      const bool last = (in.terminated[row] | in.truncated[row]) != 0 || t == in.steps - 1 ||
                        in.valid[row + envs] == 0;
      const float next_value = terminated ? 0.0F : in.next_value[row];
      const float next_target = last ? next_value : target[row + envs];
      const float ratio = std::exp(in.log_ratio[row]);
      const float rho = std::min(in.rho_bar, ratio);
      const float c = in.lambda * std::min(in.c_bar, ratio);
      const float delta = rho * (in.reward[row] + in.gamma * next_value - value);
      target[row] = value + delta + in.gamma * c * (next_target - next_value);
      advantage[row] = rho * (in.reward[row] + in.gamma * next_target - value);
    }
  }
}

}  // namespace shoal::collect
