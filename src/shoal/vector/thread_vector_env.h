// A VectorEnv of native environments stepped by persistent threads of this process; the caller is worker 0.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/vector/stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// Each stepper is a contiguous range of rows and stays with its thread, so that its state stays in that core's cache.
/// With one stepper there is no thread at all.
///
/// step_async() only starts the other threads: the caller does its own range in wait().
class ThreadVectorEnv final : public VectorEnv {
 public:
  /// Throws InvalidArgument when the steppers' spaces differ.
  ThreadVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, AutoresetMode mode);
  ~ThreadVectorEnv() override;

  ThreadVectorEnv(const ThreadVectorEnv&) = delete;
  ThreadVectorEnv& operator=(const ThreadVectorEnv&) = delete;

  int num_envs() const noexcept override;
  int num_workers() const noexcept override;
  const env::Space& single_observation_space() const noexcept override;
  const env::Space& single_action_space() const noexcept override;
  AutoresetMode autoreset_mode() const noexcept override;
  std::span<const shm::TensorView> actions() const noexcept override;

  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask = {}) override;
  void step_async() override;
  Batch wait(std::optional<std::chrono::nanoseconds> timeout = {}) override;
  Stats stats() const override;
  void close() noexcept override;

 private:
  class Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace shoal::vector
