// A rollout on its way from the actor to the learner, with what the actor knew when it was done.
//
// Threads: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shoal/collect/episode_stats.h"
#include "shoal/collect/rollout.h"
#include "shoal/collect/running_moments.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

struct CollectedRollout {
  collect::Rollout rollout;
  std::int64_t version = 0;             // of the weights: the updates before them
  collect::RunningMoments obs_moments;  // the normaliser's; of size 0 where there is none
  // As IterationStats.
  std::vector<collect::Episode> finished = {};
  std::int64_t episodes = 0;
  double episode_return_mean = 0;  // NaN before the first episode
  double episode_length_mean = 0;

  /// Adds all of it to `state`, as the `index`-th that waits.
  void save(std::size_t index, LearnerState& state);
  /// Overwrites all of it with what save() wrote. Throws InvalidArgument when that is of another
  /// shape.
  void load(std::size_t index, const LearnerState& state);
  /// How many a state has. Throws InvalidArgument when it is not of a learner with an actor.
  static std::size_t count_in(const LearnerState& state);

  void report(IterationStats& stats);
};

/// Every array of a rollout, by name; observations with those that it ended with.
std::vector<std::pair<std::string, shm::TensorView>> arrays_of(collect::Rollout& rollout);

}  // namespace shoal::learn
