// A learner whose environments are stepped in a thread of its own, ahead of it: the common part of
// IMPALA and APPO, which correct by V-trace for the age of the weights, and of PPO and A2C with
// `overlap` (kOverlap), which do not. An update learns from a rollout while the next ones are
// collected, with weights that are a few updates old: AsynchronousOptions::max_lag bounds how many,
// IterationStats::policy_lag tells.
//
// steps() are those that were learned from; the environments are at most max_lag + 1 rollouts ahead.
// Rollouts that wait are part of state(): none is lost.
//
// Determinism: with `deterministic`, as RolloutLearner. Without it, which weights a rollout is
// collected with depends on timing.
//
// Threads: one at a time. The environments are stepped by another one, from iterate() on until rest(),
// state(), begin() or the destructor; with `deterministic`, within iterate() alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "shoal/env/space.h"
#include "shoal/learn/asynchronous/asynchronous_options.h"
#include "shoal/learn/asynchronous/rollout_supply.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/learner/rollout_learner.h"
#include "shoal/learn/learner/shards.h"

namespace shoal::learn {

class AsynchronousLearner : public Learner {
 public:
  /// Throws InvalidArgument for spaces that it cannot learn (which, and what it can). `config` and
  /// `options` are valid. An update that corrects for the lag: corrected_update.h.
  /// Without a `supply` it has a CollectingThread.
  AsynchronousLearner(const env::Space& observation, const env::Space& action, int num_envs,
                      const LearnerConfig& config, const AsynchronousOptions& options,
                      std::uint64_t seed, const MakeUpdate& make_update,
                      std::shared_ptr<RolloutSupply> supply = nullptr);
  ~AsynchronousLearner() override;

  void begin(vector::VectorEnv& envs) override;
  void resume(vector::VectorEnv& envs, const vector::Batch& current) override;
  IterationStats iterate() override;
  void rest() const noexcept override;
  std::int64_t steps() const noexcept override;
  std::int64_t iteration() const noexcept override;
  ActingPolicy& acting() override;
  LearnerState state() const override;
  LearnerState policy_state() const override;  // without the rollouts that wait
  void load_state(const LearnerState& state) override;
  void load_policy(const LearnerState& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A RolloutLearner, or, with `overlap`, an AsynchronousLearner with kOverlap. Throws InvalidArgument as
/// their constructors, and where the environments of overlap are parted.
std::unique_ptr<Learner> make_rollout_learner(const env::Space& observation,
                                              const env::Space& action, const Shards& shards,
                                              const LearnerConfig& config, std::uint64_t seed,
                                              bool overlap, const RankOptions& ranks,
                                              const MakeUpdate& make_update);

}  // namespace shoal::learn
