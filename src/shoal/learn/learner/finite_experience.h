// What environments give that is not finite, found before anything is learned from it.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/collect/rollout.h"

namespace shoal::learn {

/// Throws Error where an observation of environment `env`, as the dense vector that networks take,
/// is not finite.
void require_finite(std::span<const float> observation, std::int64_t env);

/// Throws Error where a reward of environment `env` is not finite as it is learned from: in float32,
/// which a larger number than it holds is not finite in.
void require_finite(float learned, double reward, std::int64_t env);

/// The same of all steps that count, and of the values of what followed them. `first_env`: the
/// number of the rollout's first environment.
void require_finite(collect::Rollout& rollout, int first_env);

}  // namespace shoal::learn
