// A learner that collects rollouts of a fixed length from all environments and updates its policy
// with each: the common part of PPO, A2C and their kin.
//
// Determinism: the same spaces, configuration, seed, number of environments and trajectories give
// the same parameters bit for bit on one machine, for any backend and number of workers: every
// random number is a function of the seed and of what it is for (environment, step, epoch), and no
// sum depends on scheduling. With the same number of shards also for any number of ranks.
//
// With a group every rank calls begin(), resume() and iterate() as often as the others; steps() and
// what iterate() returns count those of all. Episodes that have finished are known to rank 0 alone;
// state() has this rank's environments.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/config/rank_options.h"
#include "shoal/learn/learner/actor_critic_policy.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/learner/rollout_update.h"
#include "shoal/learn/learner/shards.h"

namespace shoal::learn {

/// Makes the update of this policy, which outlives it.
using MakeUpdate = std::function<std::unique_ptr<RolloutUpdate>(ActorCriticPolicy& policy)>;

class RolloutLearner : public Learner {
 public:
  /// Throws InvalidArgument for spaces that it cannot learn (which, and what it can). `config` is
  /// valid. It has the environments that are `shards`' here.
  RolloutLearner(const env::Space& observation, const env::Space& action, const Shards& shards,
                 const LearnerConfig& config, std::uint64_t seed, const MakeUpdate& make_update,
                 const Recurrence& recurrence = {}, const RankOptions& ranks = {});
  ~RolloutLearner() override;

  void begin(vector::VectorEnv& envs) override;
  void resume(vector::VectorEnv& envs, const vector::Batch& current) override;
  IterationStats iterate() override;
  std::int64_t steps() const noexcept override;
  std::int64_t iteration() const noexcept override;
  ActingPolicy& acting() override;
  LearnerState state() const override;
  void load_state(const LearnerState& state) override;
  void load_policy(const LearnerState& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::learn
