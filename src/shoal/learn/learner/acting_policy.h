// What acts, whichever its network is: raw observations in, the environments' actions out. What a
// checkpoint is opened as.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class ActingPolicy {
 public:
  virtual ~ActingPolicy() = default;

  /// Chooses actions for any number of rows of raw observations (one view per leaf) and writes them
  /// as the environment takes them (one view per leaf of the action space). `deterministic`: the
  /// best or most probable one; otherwise row i is sampled with random numbers of (seed, i, `step`),
  /// apart from those of training. Changes no state.
  virtual void act(std::span<const shm::TensorView> obs, std::span<const shm::TensorView> actions,
                   bool deterministic, std::uint64_t step = 0) = 0;

  /// As act(), but samples with the random numbers of training, and tells log-probabilities and
  /// values (NaN where it has none). The actions of a Box of float32 are written as they were drawn,
  /// not clipped.
  virtual void decide(std::span<const shm::TensorView> obs, std::uint64_t step,
                      const shm::TensorView& action, std::span<float> log_prob,
                      std::span<float> value) = 0;

  /// Random numbers are those of `seed` from now on.
  virtual void reseed(std::uint64_t seed) noexcept = 0;

  /// Adds the parameters and the normaliser of observations to `state`.
  virtual void save(LearnerState& state) const = 0;
  /// Throws InvalidArgument when names, shapes or types are not this policy's. Strong guarantee.
  virtual void load(const LearnerState& state) = 0;
};

}  // namespace shoal::learn
