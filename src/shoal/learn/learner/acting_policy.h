// What acts, whichever its network is: raw observations in, the environments' actions out. What a
// checkpoint is opened as.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {

class ActingPolicy {
 public:
  virtual ~ActingPolicy() = default;

  /// Floats that it remembers of a row's episode; 0: it acts by what it sees alone.
  virtual std::size_t memory_size() const noexcept { return 0; }

  /// Chooses actions for any number of rows of raw observations (one view per leaf) and writes them
  /// as the environment takes them (one view per leaf of the action space). `deterministic`: the
  /// best or most probable one; otherwise row i is sampled with random numbers of (seed, i, `step`),
  /// apart from those of training. `memory` ([rows][memory_size()], zeros where an episode begins)
  /// moves on; nothing else changes.
  virtual void act(std::span<const shm::TensorView> obs, std::span<float> memory,
                   std::span<const shm::TensorView> actions, bool deterministic,
                   std::uint64_t step = 0) = 0;

  /// As act(), but samples with the random numbers of training, and tells log-probabilities and
  /// values (NaN where it has none). The actions of a Box of float32 are written as they were drawn,
  /// not clipped.
  virtual void decide(std::span<const shm::TensorView> obs, std::span<float> memory,
                      std::uint64_t step, const shm::TensorView& action, std::span<float> log_prob,
                      std::span<float> value) = 0;

  /// Random numbers are those of `seed` from now on.
  virtual void reseed(std::uint64_t seed) noexcept = 0;

  /// Adds the parameters and the normaliser of observations to `state`.
  virtual void save(LearnerState& state) const = 0;
  /// Throws InvalidArgument when names, shapes or types are not this policy's. Strong guarantee.
  virtual void load(const LearnerState& state) = 0;
};

/// What a policy remembers of the episodes of some rows; a value.
class EpisodeMemory {
 public:
  explicit EpisodeMemory(std::size_t row_size) : row_size_(row_size) {}

  /// For the next act(): zeros in the rows that begin an episode, and in all where there were others
  /// than as many.
  std::span<float> of(std::span<const std::uint8_t> is_first) {
    if (values_.size() != is_first.size() * row_size_)
      values_.assign(is_first.size() * row_size_, 0.0F);
    forget(is_first);
    return values_;
  }

  void forget(std::span<const std::uint8_t> rows) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (rows[r] != 0) std::ranges::fill(row(r), 0.0F);
    }
  }

  void load(std::span<const float> values) { values_.assign(values.begin(), values.end()); }

  std::span<float> row(std::size_t r) { return all().subspan(r * row_size_, row_size_); }
  std::span<float> all() noexcept { return values_; }
  std::span<const float> all() const noexcept { return values_; }

 private:
  std::size_t row_size_;
  std::vector<float> values_;
};

}  // namespace shoal::learn
