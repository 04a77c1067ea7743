// Who chooses the actions: what a collector needs of a learner's policy.
//
// A policy sees encoded observations (ObservationEncoder) and gives actions in its own form, which
// are stored as they are and turned into the environment's form by an ActionDecoder. One that
// remembers what it saw of an episode (recurrent networks) is told where episodes begin.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/shm/tensor.h"

namespace shoal::collect {

class Policy {
 public:
  virtual ~Policy() = default;

  /// One row of its actions: float32 [dimensions] for a Box, int32 [components] for everything
  /// else.
  virtual const shm::TensorSpec& action_spec() const noexcept = 0;

  /// Samples an action for every row of `obs` (one view per encoded leaf) and tells its
  /// log-probability and the row's value. Row i is environment i; `step` counts the steps of each
  /// environment since the start of the run, so that (seed, i, step) can name the random numbers of
  /// one decision. All outputs have obs' number of rows.
  virtual void act(std::span<const shm::TensorView> obs, std::uint64_t step,
                   const shm::TensorView& actions, std::span<float> logp,
                   std::span<float> value) = 0;

  /// The values alone: row k of `obs` is what environment envs[k] would see next; acts on nothing
  /// that is remembered.
  virtual void values(std::span<const shm::TensorView> obs, std::span<const int> envs,
                      std::span<float> value) = 0;

  /// Of policies that remember. A rollout begins with the next act().
  virtual void begin_rollout() {}
  /// What came before is forgotten of every environment whose flag is not 0: another episode begins
  /// with the next act().
  virtual void forget(std::span<const std::uint8_t> /*envs*/) {}
};

}  // namespace shoal::collect
