// A policy out of a checkpoint, ready to act; and what a checkpoint holds beside the learner's own
// state.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/learn/algorithm/train_config.h"
#include "shoal/learn/checkpoint/checkpoint.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/learner/acting_policy.h"

namespace shoal::learn {

class TrainedPolicy {
 public:
  /// From the directory of a checkpoint. Throws CorruptFile when it is none, or its parts do not
  /// fit together.
  static TrainedPolicy load(const std::filesystem::path& checkpoint);

  const env::Space& observation_space() const noexcept { return observation_space_; }
  const env::Space& action_space() const noexcept { return action_space_; }
  /// Environment steps that it was trained for.
  std::int64_t steps() const noexcept { return steps_; }
  const TrainConfig& config() const noexcept { return config_; }

  ActingPolicy& acting() noexcept { return *agent_; }

 private:
  TrainedPolicy() = default;
  /// Throws InvalidArgument for a network that is much larger than these arrays.
  static void require_room(const TrainedPolicy& policy, const SafeTensors& arrays);

  env::Space observation_space_;
  env::Space action_space_;
  TrainConfig config_;
  std::int64_t steps_ = 0;
  std::unique_ptr<ActingPolicy> agent_;
};

/// Where a learner's arrays go in a checkpoint. policy.safetensors: the parameters, and
/// "normalizer.obs.…"; optim.safetensors: the moments, "normalizer.return.…", "episodes.…", "replay.…". Borrows
/// from `state` and `envs`.
CheckpointArrays arrays_of(const LearnerState& state, const std::vector<NamedArray>& envs);

/// The inverse, of a checkpoint read in whole or for its policy. `counters` is state.json's
/// "learner".
LearnerState learner_state_of(const Checkpoint& checkpoint);

}  // namespace shoal::learn
