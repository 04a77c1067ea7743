// Advantage actor-critic (Mnih et al., 2016), synchronous: all environments take num_steps steps,
// then the policy takes one step along the gradient of what they saw.
//
//   A2c a2c(envs->single_observation_space(), envs->single_action_space(), envs->num_envs(),
//           config, seed);
//   a2c.begin(*envs);
//   while (a2c.steps() < config.total_steps) IterationStats stats = a2c.iterate();
//
// It is PPO with one epoch, one minibatch and the same optimiser (Huang et al., 2022,
// arXiv:2205.09123), which a test holds it to. rollout_learner.h says what is deterministic.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/a2c/a2c_config.h"
#include "shoal/learn/learner/rollout_learner.h"
#include "shoal/learn/learner/shards.h"

namespace shoal::learn {

/// Collects and updates in turns, whatever `config.overlap` says.
class A2c final : public RolloutLearner {
 public:
  /// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
  /// configuration. With a group it has this rank's share of `num_envs` environments.
  A2c(const env::Space& observation, const env::Space& action, int num_envs,
      const A2cConfig& config, std::uint64_t seed, std::shared_ptr<group::Group> group = nullptr);

 private:
  A2c(const env::Space& observation, const env::Space& action, const Shards& shards,
      const A2cConfig& config, std::uint64_t seed);
};

/// As the constructor: an A2c, or, with `config.overlap`, an AsynchronousLearner with its update.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const A2cConfig& config, std::uint64_t seed,
                                      std::shared_ptr<group::Group> group = nullptr);

}  // namespace shoal::learn
