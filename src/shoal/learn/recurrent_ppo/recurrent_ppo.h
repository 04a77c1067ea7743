// Proximal policy optimisation (Schulman et al., 2017) with a policy that remembers its episode: LSTMs
// (Hochreiter and Schmidhuber, 1997) before the hidden layers. What is particular to them is as in
// Huang et al., "The 37 Implementation Details of Proximal Policy Optimization" (2022): orthogonal
// weights and biases of 0, memories of 0 at first and where an episode begins, minibatches of whole
// sequences, and updates that go on from what was remembered at the rollout's beginning. A batch_size
// below num_steps cuts sequences, as sb3-contrib does (recurrent_ppo_update.h).
//
// rollout_learner.h says what is deterministic. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/recurrent_ppo/recurrent_ppo_config.h"

namespace shoal::learn {

/// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
/// configuration.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const RecurrentPpoConfig& config,
                                      std::uint64_t seed);
std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action,
                                                 const RecurrentPpoConfig& config,
                                                 std::uint64_t seed);

}  // namespace shoal::learn
