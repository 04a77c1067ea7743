// The learner of a configuration, whichever algorithm it is for.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/algorithm/algorithm_config.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/learn/learner/learner.h"

namespace shoal::learn {

/// Throws InvalidArgument for spaces that it cannot learn, or an invalid configuration.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const AlgorithmConfig& config,
                                      std::uint64_t seed);

/// What acts as such a learner does. Throws as make_learner().
std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action,
                                                 const AlgorithmConfig& config, std::uint64_t seed);

}  // namespace shoal::learn
