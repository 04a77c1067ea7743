// Who chooses the actions: what a collector needs of a learner's policy.
//
// A policy sees encoded observations (ObservationEncoder) and gives actions in its own form, which
// are stored as they are and turned into the environment's form by an ActionDecoder.
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

  /// The values alone, for any number of rows.
  virtual void values(std::span<const shm::TensorView> obs, std::span<float> value) = 0;
};

}  // namespace shoal::collect
