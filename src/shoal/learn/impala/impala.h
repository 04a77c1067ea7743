// IMPALA (Espeholt et al., 2018, arXiv:1802.01561): one step along A2C's gradient for each rollout,
// whose advantages and targets V-trace corrects for the age of the weights that it was collected
// with.
//
// asynchronous_learner.h says what runs beside what, and what is deterministic.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/asynchronous/rollout_supply.h"
#include "shoal/learn/impala/impala_config.h"
#include "shoal/learn/learner/learner.h"

namespace shoal::learn {

/// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
/// configuration. `supply`: where its rollouts come from; by default it collects them itself.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const ImpalaConfig& config, std::uint64_t seed,
                                      std::shared_ptr<RolloutSupply> supply = nullptr);

}  // namespace shoal::learn
