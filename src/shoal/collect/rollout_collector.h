// Steps a vector environment with a policy and fills rollouts.
//
// What becomes of a row's special cases:
//
//   next-step autoreset   The step after an episode's end only resets: its row is not valid. The
//                         observation that an episode ends with is obs(t + 1), so next_value(t)
//                         is its value.
//   same-step autoreset   obs(t + 1) is the next episode's first; next_value(t) is the value of
//                         final_obs.
//   dead worker           The row is not valid.
//
// Threads: one at a time. The same environments, seeds and policy give the same rollouts, whatever
// the backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shoal/collect/action_decoder.h"
#include "shoal/collect/episode_stats.h"
#include "shoal/collect/observation_encoder.h"
#include "shoal/collect/policy.h"
#include "shoal/collect/reward_scaler.h"
#include "shoal/collect/rollout.h"
#include "shoal/vector/vector_env.h"

namespace shoal::collect {

/// What a collector borrows; everything outlives it.
struct RolloutCollectorParts {
  Policy& policy;
  ObservationEncoder& encoder;
  const ActionDecoder& decoder;
  RewardScaler& rewards;
  EpisodeStats& episodes;
};

class RolloutCollector {
 public:
  /// Throws InvalidArgument when `envs` does not reset its environments by itself.
  RolloutCollector(vector::VectorEnv& envs, RolloutCollectorParts parts, int num_steps);

  /// Resets every environment, environment i with seeds[i], and starts from there.
  void reset(std::span<const std::optional<std::uint64_t>> seeds);

  /// Starts in the middle of episodes: `current` is what the environments' last reset or step gave,
  /// and encoder, rewards and episodes have been put back to where they stood after it.
  void resume(const vector::Batch& current);

  /// Takes num_steps steps of every environment. `first_step` numbers the first of them, for the
  /// policy's random numbers. The rollout is valid until the next call. Throws what the
  /// environments throw, and then needs a reset(). `enough`, where there is one, is asked before
  /// each step from a quarter of them on: true, and no more are taken; the rows that are missing are
  /// not valid.
  Rollout& collect(std::uint64_t first_step, const std::function<bool()>& enough = {});
  /// Steps of the last one.
  int taken() const noexcept { return taken_; }

  /// Calls `call` after each step of the environments, from now on.
  void after_each_step(std::function<void()> call) { after_step_ = std::move(call); }

  /// Gives the rollout that was collected last in exchange for another of its shape, into which the
  /// next one is collected.
  void exchange(Rollout& rollout);

  /// Encodes the observations that the next rollout begins with anew, by what encoder and shards
  /// have agreed on meanwhile. After a reset() or a resume().
  void encode_again();

 private:
  void choose_actions(int t, std::uint64_t step);
  void take_in(int t, const vector::Batch& batch);
  void value_final_observations(int t, const vector::Batch& batch);

  vector::VectorEnv& envs_;
  RolloutCollectorParts parts_;
  Rollout rollout_;
  vector::Batch last_{};  // what the environments gave last, which is theirs
  bool ready_ = false;
  int taken_ = 0;
  std::function<void()> after_step_;
  std::vector<float> last_value_;
  std::vector<int> all_envs_;
  std::vector<std::uint8_t> done_;
  std::vector<std::uint8_t> skip_;
  std::vector<std::uint8_t> forgotten_;
  // Room for the final observations of one step, as many rows as there are environments.
  std::vector<std::vector<std::byte>> final_bytes_;
  std::vector<shm::TensorView> final_obs_;
  std::vector<float> final_value_;
  std::vector<int> final_env_;
};

}  // namespace shoal::collect
