// The parts of an OffPolicyLearner, for its own source files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shoal/collect/replay/replay.h"
#include "shoal/learn/learner/episode_standing.h"
#include "shoal/learn/off_policy/off_policy_learner.h"
#include "shoal/learn/off_policy/replay_stream.h"

namespace shoal::learn {

struct OffPolicyLearner::Impl {
  Impl(const env::Space& observation, const env::Space& action, int num_envs,
       const OffPolicyConfig& config, std::unique_ptr<OffPolicyUpdate> update);

  void attach(vector::VectorEnv& envs);
  double remaining() const;
  void step();
  /// What is due after steps from `before` on.
  void learn(std::int64_t before, OffPolicySums& sums);
  void learn_once(OffPolicySums& sums);
  ReplayMinibatch minibatch();
  /// `count`: updates of this iteration.
  void report(const OffPolicySums& sums, double count, IterationStats& stats);

  const env::Space observation_space;
  const env::Space action_space;
  const int num_envs;
  const OffPolicyConfig config;
  std::unique_ptr<OffPolicyUpdate> update;
  collect::Replay replay;
  EpisodeStanding standing;
  ReplayStream stream;
  std::vector<std::byte> action_bytes;
  shm::TensorView actions;  // of all environments, as they are kept
  vector::VectorEnv* envs = nullptr;
  std::int64_t steps = 0;
  std::int64_t iteration = 0;
  std::int64_t updates = 0;

  // Room that is used again.
  collect::ReplaySamples samples;
  std::vector<float> returns, discounts;
  std::vector<double> td_errors;
};

}  // namespace shoal::learn
