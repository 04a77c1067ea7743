// Soft actor-critic (Haarnoja et al., 2018): a squashed Gaussian policy that is rewarded for its entropy, twin
// critics, and a temperature that is learned.
//
//   Sac sac(envs->single_observation_space(), envs->single_action_space(), envs->num_envs(),
//           config, seed);
//   sac.begin(*envs);
//   while (sac.steps() < config.total_steps) IterationStats stats = sac.iterate();
//
// Critics and entropy see actions scaled to [-1, 1], whatever the bounds of the Box. off_policy_learner.h says in
// which order things happen, and what is deterministic; sac_update.h what an update is.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/off_policy/off_policy_learner.h"
#include "shoal/learn/sac/sac_config.h"

namespace shoal::learn {

class Sac final : public OffPolicyLearner {
 public:
  /// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
  /// configuration.
  Sac(const env::Space& observation, const env::Space& action, int num_envs,
      const SacConfig& config, std::uint64_t seed);
};

/// As the constructor.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const SacConfig& config, std::uint64_t seed);

}  // namespace shoal::learn
