// Asynchronous PPO (Petrenko et al., 2020, arXiv:2006.11751; RLlib's APPO): PPO's update on
// rollouts of weights that are a few updates old. Two ratios of probabilities keep apart what
// differs:
//
//   now / when the update began          PPO's, in the clipped surrogate: how far an update goes
//   when the update began / when acting  V-trace's (Espeholt et al., 2018, arXiv:1802.01561), in
//                                        advantages and targets: how old the weights were
//
// asynchronous_learner.h says what runs beside what, and what is deterministic.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/appo/appo_config.h"
#include "shoal/learn/asynchronous/rollout_supply.h"
#include "shoal/learn/learner/learner.h"

namespace shoal::learn {

/// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
/// configuration. `supply`: where its rollouts come from; by default it collects them itself.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const AppoConfig& config, std::uint64_t seed,
                                      std::shared_ptr<RolloutSupply> supply = nullptr);

}  // namespace shoal::learn
