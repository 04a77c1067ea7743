// Deep Q-learning (Mnih et al., 2015), with double Q-learning (van Hasselt et al., 2016), dueling streams (Wang
// et al., 2016), prioritised replay (Schaul et al., 2016) and returns of n steps as switches.
//
// off_policy_learner.h says in which order things happen, and what is deterministic.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/dqn/dqn_config.h"
#include "shoal/learn/learner/learner.h"

namespace shoal::learn {

/// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
/// configuration.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const DqnConfig& config, std::uint64_t seed);

}  // namespace shoal::learn
