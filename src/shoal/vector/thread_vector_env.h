// A VectorEnv of native environments stepped by persistent threads of this process; the caller is
// worker 0.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/vector/call_state.h"
#include "shoal/vector/row_storage.h"
#include "shoal/vector/stepper.h"
#include "shoal/vector/thread_pool.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// Each stepper is a contiguous range of rows and stays with its thread, so that its state stays in
/// that core's cache. With one stepper there is no thread at all, and steps that are shorter than a
/// wake-up are left to the caller alone.
///
/// step_async() only starts the other threads: the caller does its own range in wait(). After a
/// failure of an environment, which wait() throws as it was thrown, every call but close() throws
/// InvalidState.
class ThreadVectorEnv final : public VectorEnv {
 public:
  /// Throws InvalidArgument when the steppers' spaces differ (it names the environment and both
  /// spaces).
  ThreadVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, AutoresetMode mode);
  ~ThreadVectorEnv() override;

  ThreadVectorEnv(const ThreadVectorEnv&) = delete;
  ThreadVectorEnv& operator=(const ThreadVectorEnv&) = delete;

  int num_envs() const noexcept override { return rows_.num_envs; }
  int num_workers() const noexcept override { return num_workers_; }
  const env::Space& single_observation_space() const noexcept override {
    return spaces_.observation_space;
  }
  const env::Space& single_action_space() const noexcept override { return spaces_.action_space; }
  AutoresetMode autoreset_mode() const noexcept override { return rows_.autoreset_mode; }
  std::span<const shm::TensorView> actions() const noexcept override { return rows_.actions; }

  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask = {}) override;
  void step_async() override;
  Batch wait(std::optional<std::chrono::nanoseconds> timeout = {}) override;
  Stats stats() const override;
  void close() noexcept override;

 private:
  Hello spaces_;
  int num_workers_;
  CallState state_;
  RowStorage storage_;
  Rows rows_;
  Stats stats_;
  ThreadPool pool_;  // after the rows, which its threads write
};

}  // namespace shoal::vector
