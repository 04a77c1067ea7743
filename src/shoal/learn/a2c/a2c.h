// Advantage actor-critic (Mnih et al., 2016), synchronous: all environments take num_steps steps,
// then the policy takes one step along the gradient of what they saw.
//
// It is PPO with one epoch, one minibatch and the same optimiser (Huang et al., 2022,
// arXiv:2205.09123), which a test holds it to. rollout_learner.h says what is deterministic.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/group/group.h"
#include "shoal/learn/a2c/a2c_config.h"
#include "shoal/learn/learner/learner.h"

namespace shoal::learn {

/// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
/// configuration. With a group it has this rank's share of `num_envs` environments. It collects and
/// updates in turns, or, with `config.overlap`, both beside each other.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const A2cConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group = nullptr);

}  // namespace shoal::learn
