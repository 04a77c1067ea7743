// A VectorEnv of native environments stepped by persistent threads of this process; the caller is
// worker 0.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/vector/call_state.h"
#include "shoal/vector/env_board.h"
#include "shoal/vector/local/thread_pool.h"
#include "shoal/vector/step/row_storage.h"
#include "shoal/vector/step/stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// One divisible stepper is stepped chunk by chunk by all threads (thread_pool.h). Of several
/// steppers each is stepped by one thread at a time. Results do not depend on who steps what. Steps
/// that are shorter than what sharing them costs are left to the caller alone.
///
/// step_async() only wakes the other threads: the caller does its share in wait(). After a failure
/// of an environment, which wait() throws as it was thrown, every call but close() throws
/// InvalidState.
/// Threads: as VectorEnv.
/// Processes, death: of this one, with which its threads end.
class ThreadVectorEnv final : public VectorEnv, public Boarded {
 public:
  /// `num_threads` counts the caller; 0: one for each stepper. Throws InvalidArgument when the
  /// steppers' spaces differ (it names the environment and both spaces).
  ThreadVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, AutoresetMode mode,
                  int num_threads = 0);
  ~ThreadVectorEnv() override;

  ThreadVectorEnv(const ThreadVectorEnv&) = delete;
  ThreadVectorEnv& operator=(const ThreadVectorEnv&) = delete;

  int num_envs() const noexcept override { return rows_.num_envs; }
  int num_workers() const noexcept override { return pool_.threads(); }
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
  /// Of the stepper that holds the first environment of `worker`'s share.
  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override;
  Stats stats() const override;
  EnvBoard& board() noexcept override { return board_; }
  std::vector<WorkerHealth> health() const override { return board_.now(VectorEnv::health()); }
  void require_open(const char* call) const override { state_.require_open(call); }
  void close() noexcept override;

 private:
  bool divided() const noexcept { return steppers_.size() == 1 && steppers_[0]->divisible(); }
  void run(ThreadPool::Work work, int lo, int hi);
  int first_env(int worker) const noexcept;

  std::vector<std::unique_ptr<Stepper>> steppers_;
  Hello spaces_;
  CallState state_;
  RowStorage storage_;
  Rows rows_;
  Stats stats_;
  std::uint64_t requests_ = 0;
  EnvBoard board_;
  ThreadPool pool_;  // last: its threads use all that is above
};

}  // namespace shoal::vector
