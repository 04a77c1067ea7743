// A VectorEnv that steps in the calling thread: the reference that every other backend must equal
// bit for bit.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/vector/call_state.h"
#include "shoal/vector/env_board.h"
#include "shoal/vector/step/row_storage.h"
#include "shoal/vector/step/stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// One or several steppers over one set of rows; a stepper counts as a worker in info(), request()
/// and stats().
///
/// The _async calls do the work; wait() hands out the result, or throws what the
/// stepper threw. After such a failure every call but close() throws InvalidState.
/// Threads: as VectorEnv.
/// Processes, death: of this one, with which everything of it ends.
class SerialVectorEnv final : public VectorEnv, public Boarded {
 public:
  /// Throws InvalidArgument when the steppers' spaces differ (it names the environment and both
  /// spaces).
  SerialVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, AutoresetMode mode,
                  bool step_before_reset = false);
  ~SerialVectorEnv() override;

  SerialVectorEnv(const SerialVectorEnv&) = delete;
  SerialVectorEnv& operator=(const SerialVectorEnv&) = delete;

  int num_envs() const noexcept override { return rows_.num_envs; }
  int num_workers() const noexcept override { return static_cast<int>(stats_.workers.size()); }
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
  std::span<const std::byte> info(int worker) override;
  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override;
  void request_async(std::span<const std::vector<std::byte>> messages) override;
  std::vector<std::vector<std::byte>> request_wait(
      std::optional<std::chrono::nanoseconds> timeout = {}) override;
  Stats stats() const override;
  EnvBoard& board() noexcept override { return board_; }
  std::vector<WorkerHealth> health() const override { return board_.now(VectorEnv::health()); }
  void require_open(const char* call) const override { state_.require_open(call); }
  void close() noexcept override;

  /// For the face that put it there: its infos without a detour through bytes. Not after close().
  Stepper& stepper(int worker);

 private:
  template <class Work>
  void run(Work work);

  std::vector<std::unique_ptr<Stepper>> steppers_;
  Hello spaces_;
  CallState state_;
  RowStorage storage_;
  Rows rows_;
  Stats stats_;
  EnvBoard board_;
  std::exception_ptr failure_;                   // of the call under way
  std::vector<std::vector<std::byte>> answers_;  // to the request under way
};

}  // namespace shoal::vector
