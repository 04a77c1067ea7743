// Proximal policy optimisation (Schulman et al., 2017) on a vector environment.
//
//   Ppo ppo(envs->single_observation_space(), envs->single_action_space(), envs->num_envs(),
//           config, seed);
//   ppo.begin(*envs);
//   while (ppo.steps() < config.total_steps) IterationStats stats = ppo.iterate();
//
// rollout_learner.h says what is deterministic. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/learner/rollout_learner.h"
#include "shoal/learn/learner/shards.h"
#include "shoal/learn/ppo/ppo_config.h"

namespace shoal::learn {

/// Collects and updates in turns, whatever `config.overlap` says.
class Ppo final : public RolloutLearner {
 public:
  /// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
  /// configuration. With a group it has this rank's share of `num_envs` environments.
  Ppo(const env::Space& observation, const env::Space& action, int num_envs,
      const PpoConfig& config, std::uint64_t seed, std::shared_ptr<group::Group> group = nullptr);

 private:
  Ppo(const env::Space& observation, const env::Space& action, const Shards& shards,
      const PpoConfig& config, std::uint64_t seed);
};

/// As the constructor: a Ppo, or, with `config.overlap`, an AsynchronousLearner with its update.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const PpoConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group = nullptr);

}  // namespace shoal::learn
