#include "shoal/learn/learner/finite_experience.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "shoal/learn/learner/all_finite.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

/// Of all observations, with those that the rollout ends with; none where they are pictures alone.
std::span<const float> dense_of(const collect::Rollout& rollout) {
  shm::TensorView first = rollout.obs().front();
  if (first.row.dtype != shm::DType::kF32) return {};
  first.rows += rollout.envs();
  return first.as<float>();
}

}  // namespace

void require_finite(std::span<const float> observation, std::int64_t env) {
  const auto wrong = std::ranges::find_if(observation, [](float x) { return !std::isfinite(x); });
  if (wrong != observation.end())
    throw Error(fmt::format(
        "environment {} gave an observation that is not finite: as the network sees it, element {} "
        "is {}. No checkpoint has it",
        env, wrong - observation.begin(), *wrong));
}

void require_finite(float learned, double reward, std::int64_t env) {
  if (!std::isfinite(learned))
    throw Error(fmt::format(
        "environment {} gave a reward that is not finite in float32: {}. No checkpoint has it", env,
        reward));
}

void require_finite(collect::Rollout& rollout, int first_env) {
  const auto dense = dense_of(rollout);
  if (all_finite(dense) && all_finite<float>(rollout.reward()) &&
      all_finite<float>(rollout.next_value()))
    return;
  const auto envs = static_cast<std::size_t>(rollout.envs());
  const std::size_t width = dense.size() / (rollout.size() + envs);
  const std::vector<std::int32_t> rows = rollout.valid_rows();
  const auto env_of = [&](std::int32_t row) { return first_env + row % rollout.envs(); };
  for (const std::int32_t row : rows) {
    const auto i = static_cast<std::size_t>(row);
    require_finite(dense.subspan(i * width, width), env_of(row));
    require_finite(rollout.reward()[i], rollout.reward()[i], env_of(row));
  }
  for (const std::int32_t row : rows) {
    const auto i = static_cast<std::size_t>(row);
    if (rollout.terminated()[i] != 0 || std::isfinite(rollout.next_value()[i])) continue;
    if (!rollout.ends_are_replaced() || rollout.truncated()[i] == 0)
      require_finite(dense.subspan((i + envs) * width, width), env_of(row));
    throw Error(fmt::format(
        "environment {} gave an observation whose value is not finite: {}. No checkpoint has it",
        env_of(row), rollout.next_value()[i]));
  }
}

}  // namespace shoal::learn
