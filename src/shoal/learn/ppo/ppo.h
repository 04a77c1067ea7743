// Proximal policy optimisation (Schulman et al., 2017) on a vector environment.
//
// rollout_learner.h says what is deterministic. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/group/group.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/ppo/ppo_config.h"

namespace shoal::learn {

/// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
/// configuration. With a group it has this rank's share of `num_envs` environments. It collects and
/// updates in turns, or, with `config.overlap`, both beside each other.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const PpoConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group = nullptr);

}  // namespace shoal::learn
