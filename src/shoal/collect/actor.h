// Who chooses actions for an ExperienceCollector: from raw observations, in the environment's own
// form, so that a network, a Python function and a model service are the same to it.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/shm/tensor.h"

namespace shoal::collect {

/// One decision for all environments; borrowed, row i is environment i.
struct Decision {
  /// One view per leaf of the observation space.
  std::span<const shm::TensorView> obs;
  /// 1 where obs is the first observation of an episode.
  std::span<const std::uint8_t> is_first;
  /// Decisions before this one since the start, so that (seed, row, step) can name the random
  /// numbers of one row.
  std::uint64_t step = 0;
  /// The row of the experience that is being written.
  int t = 0;

  // To be written.

  /// The actions, in the action space's form. Those of a Box of floats may lie outside its bounds:
  /// they are kept so, and clipped for the environment.
  shm::TensorView action;
  std::span<float> log_prob;  // empty where the experience has none
  std::span<float> value;     // likewise
};

class Actor {
 public:
  virtual ~Actor() = default;
  virtual void act(const Decision& decision) = 0;
};

}  // namespace shoal::collect
