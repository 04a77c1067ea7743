// Soft actor-critic (Haarnoja et al., 2018): a squashed Gaussian policy that is rewarded for its entropy, twin
// critics, and a temperature that is learned.
//
// Critics and entropy see actions scaled to [-1, 1], whatever the bounds of the Box. off_policy_learner.h says in
// which order things happen, and what is deterministic; sac_update.h what an update is.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/sac/sac_config.h"

namespace shoal::learn {

/// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
/// configuration.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const SacConfig& config, std::uint64_t seed);

}  // namespace shoal::learn
