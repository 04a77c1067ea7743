// Environments that can be brought back to where they stood, in another process, without saving
// their state.
//
// An environment's state cannot be read in general, but it is a function of the seed of its last
// seeded reset and of the actions since. This VectorEnv passes everything through to another one
// and keeps both; replay() resets with those seeds, repeats those actions (no policy, no learning),
// and compares the observation it arrives at, bit for bit.
//
// The rule for environments: what they do after reset(seed) depends on the seed and on the actions
// alone. One that draws from a generator of its process, looks at a clock, or carries things over
// from before the reset does not keep it; the comparison notices, unless the difference has not
// reached an observation yet.
//
// Cost: one copy of the actions a step, and memory and checkpoint size of as many: one byte for an
// integer of fewer than 257 values, else the action's own size. Whoever resets all environments
// with seeds from time to time bounds it.
//
// Threads: as VectorEnv; any may ask recorded_steps().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/checkpoint/safetensors.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

class ReplayableVectorEnv final : public vector::VectorEnv {
 public:
  /// Shares `envs`, which nobody else may step from now on. Throws InvalidArgument where two arrays of a space have
  /// one path, such as those of {"a/b": …, "a": {"b": …}}: a record could not name them apart.
  explicit ReplayableVectorEnv(std::shared_ptr<vector::VectorEnv> envs);

  int num_envs() const noexcept override { return envs_->num_envs(); }
  int num_workers() const noexcept override { return envs_->num_workers(); }
  const env::Space& single_observation_space() const noexcept override;
  const env::Space& single_action_space() const noexcept override;
  vector::AutoresetMode autoreset_mode() const noexcept override;
  std::span<const shm::TensorView> actions() const noexcept override { return envs_->actions(); }
  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask = {}) override;
  void step_async() override;
  vector::Batch wait(std::optional<std::chrono::nanoseconds> timeout = {}) override;
  std::span<const std::byte> info(int worker) override { return envs_->info(worker); }
  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override;
  void request_async(std::span<const std::vector<std::byte>> messages) override {
    envs_->request_async(messages);
  }
  std::vector<std::vector<std::byte>> request_wait(
      std::optional<std::chrono::nanoseconds> timeout = {}) override {
    return envs_->request_wait(timeout);
  }
  vector::Stats stats() const override { return envs_->stats(); }
  void require_open(const char* call) const override { envs_->require_open(call); }
  void close() noexcept override { envs_->close(); }
  void close_within(std::chrono::milliseconds timeout) noexcept override {
    envs_->close_within(timeout);
  }

  /// Steps of each environment since the last reset of all with seeds: what replay() would repeat.
  std::int64_t recorded_steps() const noexcept {
    return steps_.load(std::memory_order_relaxed);  // a number, nothing that it orders
  }

  /// Seeds, actions and the current observation, for a checkpoint. Nothing when the environments
  /// cannot be replayed: they have not been reset yet, or not all of them with seeds, or some of
  /// them were reset apart. Not while a step is under way.
  std::vector<NamedArray> record() const;

  /// Brings the environments to where they stood when `record` was made. Nothing when they arrived
  /// elsewhere: another observation, or a record of nothing; they are then somewhere, and want a
  /// reset. Throws CorruptFile when the record is of other spaces or another number of
  /// environments, and what the environments throw.
  std::optional<vector::Batch> replay(const SafeTensors& record);

  /// From the records of several, in the order of their environments, one of all of them; nothing
  /// where one of them is nothing, or they do not go together.
  static std::vector<NamedArray> join(const std::vector<SafeTensors>& records);
  /// Of a record that of `count` environments from `first` on. Throws CorruptFile when it has
  /// fewer.
  static SafeTensors part(const SafeTensors& record, int first, int count);

 private:
  /// The actions of one leaf, one row a step.
  struct ActionColumn {
    std::string name;
    shm::TensorSpec stored;  // one step of all environments: [num_envs, …]
    std::int64_t start = 0;  // subtracted before narrowing
    bool narrow = false;     // one byte instead of the action's integer type
    std::vector<std::byte> bytes;
  };

  void append_actions();
  void write_actions(const SafeTensors& record, std::int64_t step);
  bool arrived(const SafeTensors& record) const;

  std::shared_ptr<vector::VectorEnv> envs_;
  std::vector<ActionColumn> columns_;
  std::vector<std::string> obs_names_;
  std::vector<std::uint64_t> seeds_;  // empty: not replayable
  std::atomic<std::int64_t> steps_ = 0;
  vector::Batch batch_{};
};

}  // namespace shoal::learn
