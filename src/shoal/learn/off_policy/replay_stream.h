// From the steps of a vector environment to the rows of a replay, one column an environment.
//
//   next-step autoreset   The step after an episode's end only resets: a row that is not valid.
//   same-step autoreset   The row leads to final_obs; a row that is not valid leads on to the next
//                         episode.
//   dead worker           The row is not valid.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/collect/observation_encoder.h"
#include "shoal/collect/replay/replay.h"
#include "shoal/env/space.h"
#include "shoal/learn/learner/episode_standing.h"
#include "shoal/shm/tensor.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

class ReplayStream {
 public:
  /// Borrows the encoder that learns, the replay and the standing.
  ReplayStream(const env::Space& observation, int num_envs, collect::ObservationEncoder& encoder,
               collect::Replay& replay, EpisodeStanding& standing);

  /// What a reset of all environments gave.
  void begin(const vector::Batch& batch);
  /// What the last step gave before a checkpoint; the replay has it.
  void resume(const vector::Batch& current);
  /// What a step with these actions gave, in the form in which they are kept. Throws Error for an
  /// observation that is not finite: what is learned from a replay with it would not be either.
  void take(const vector::Batch& batch, const shm::TensorView& actions, bool same_step);

  /// The newest observations, encoded and normalised.
  std::span<const shm::TensorView> obs() const noexcept { return obs_; }

 private:
  struct Leaves {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<shm::TensorView> views;
    Leaves(const std::vector<shm::TensorSpec>& specs, std::int64_t rows);
  };

  void observe(const vector::Batch& batch, bool learn);
  void take_row(const vector::Batch& batch, const shm::TensorView& actions, std::size_t i,
                bool same_step);

  collect::ObservationEncoder plain_;  // does not normalise
  collect::ObservationEncoder& encoder_;
  collect::Replay& replay_;
  EpisodeStanding& standing_;
  Leaves kept_, seen_, final_;
  std::span<const shm::TensorView> obs_;
  std::vector<std::uint8_t> valid_, done_, skip_;
  std::vector<float> scaled_;  // not used: the scaler learns
};

}  // namespace shoal::learn
