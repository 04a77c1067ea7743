// Asynchronous advantage actor-critic (Mnih et al., 2016): actors in processes of their own, each with
// its environments and its gradient, step one set of parameters and one set of optimiser statistics
// that all share, without locks (Hogwild).
//
//   A3c a3c(actors, config, seed);
//   while (a3c.steps() < config.total_steps) IterationStats stats = a3c.iterate();
//
// The learner steps nothing itself: it starts the actors, replaces those that die, and looks on.
// steps() are of all actors, as they were at the end of the last iterate(). What act() and state() use
// is a snapshot: a copy of parameters, statistics and reward normalisers that is taken at the first of them after an
// iterate(), while the actors go on. Each number in it is whole; of updates that were under way some
// parameters may be from before and some from after, as they are in what every actor acts with. When
// steps() has reached total_steps, no rollout is under way.
//
// Determinism: none; which actor is first depends on timing. With one actor the parameters are those
// of A2C after as many updates, bit for bit.
//
// Without actors in processes, an A3C learner is one actor in this process: A2C (make_learner()).
//
// Threads: one at a time.
// Death: of an actor: ActorProcesses; iterate() and attend() see it. It may have made part of an
// optimiser's step: every parameter is whole. A rollout that it had not learned from is lost, and is
// not in steps().
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/a3c/a3c_config.h"
#include "shoal/learn/a3c/actor_processes.h"
#include "shoal/learn/learner/learner.h"

namespace shoal::learn {

class A3c final : public Learner {
 public:
  /// The actors start at the first iterate(). Throws InvalidArgument for spaces that it cannot learn
  /// (which, and what it can), normalize_obs, or an invalid configuration.
  A3c(std::shared_ptr<ActorProcesses> actors, const A3cConfig& config, std::uint64_t seed);
  /// Ends the actors.
  ~A3c() override;

  /// The actors' environments are their own: throw InvalidState.
  void begin(vector::VectorEnv& envs) override;
  void resume(vector::VectorEnv& envs, const vector::Batch& current) override;

  /// Lets the actors learn, and returns after log_interval updates, or 50 ms, or when the run has as
  /// many steps as it is to have. Losses are means over the updates since the last call, or, where
  /// there was none, that call's.
  IterationStats iterate() override;
  /// Unless the actors pause: replaces those that have died, and throws what ends the run, within 50 ms.
  void attend() override;
  /// Lets the actors pause after the rollouts that they are at.
  void rest() const noexcept override;

  std::int64_t steps() const noexcept override;
  std::int64_t iteration() const noexcept override;  // updates
  ActingPolicy& acting() override;
  LearnerState state() const override;
  void load_state(const LearnerState& state) override;
  void load_policy(const LearnerState& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One actor, in this process. Throws as A2C's.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const A3cConfig& config, std::uint64_t seed);

}  // namespace shoal::learn
