// A learner that keeps what its environments show in a replay, and learns from samples of it: the common
// part of DQN, SAC and their kin.
//
//   after each step of all environments: keep it; then, as often as train_freq says, sample and learn
//
// Order of events as in Stable-Baselines3: the step is kept, the target moves if it is due, then come the
// updates. An iteration is num_steps steps of each environment, and nothing else depends on where one ends.
//
// The replay keeps observations and rewards as they came; they are normalised when they are sampled, by the
// moments of then (as Stable-Baselines3's VecNormalize with a replay buffer).
//
// Determinism: the same spaces, configuration, seed, number of environments and trajectories give the
// same parameters bit for bit on one machine, for any backend and number of workers.
//
// Memory: the replay's, buffer_size rows, from the start; state() copies what it holds, once,
// and so does what load_state() is given.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/off_policy/off_policy_config.h"
#include "shoal/learn/off_policy/off_policy_update.h"

namespace shoal::learn {

class OffPolicyLearner : public Learner {
 public:
  /// Throws InvalidArgument where `config` has no room for a batch's windows. `config` is valid.
  OffPolicyLearner(const env::Space& observation, const env::Space& action, int num_envs,
                   const OffPolicyConfig& config, std::unique_ptr<OffPolicyUpdate> update);
  ~OffPolicyLearner() override;

  void begin(vector::VectorEnv& envs) override;
  void resume(vector::VectorEnv& envs, const vector::Batch& current) override;
  IterationStats iterate() override;
  std::int64_t steps() const noexcept override;
  std::int64_t iteration() const noexcept override;
  ActingPolicy& acting() override;
  LearnerState state() const override;
  LearnerState policy_state() const override;
  void load_state(const LearnerState& state) override;
  void load_policy(const LearnerState& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::learn
