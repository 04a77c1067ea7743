// A VectorEnv that steps in the calling thread: the reference that every other backend must equal bit for bit.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/vector/row_storage.h"
#include "shoal/vector/stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

/// One or several steppers over one set of rows; a stepper counts as a worker in info(), request() and stats().
///
/// step_async() and reset_async() do the work; wait() hands out the result, or throws what the stepper threw. After such
/// a failure every call but close() throws InvalidState.
class SerialVectorEnv final : public VectorEnv {
 public:
  /// Throws InvalidArgument when the steppers' spaces differ (it names the environment and both spaces).
  SerialVectorEnv(std::vector<std::unique_ptr<Stepper>> steppers, AutoresetMode mode);
  ~SerialVectorEnv() override;

  SerialVectorEnv(const SerialVectorEnv&) = delete;
  SerialVectorEnv& operator=(const SerialVectorEnv&) = delete;

  int num_envs() const noexcept override { return rows_.num_envs; }
  int num_workers() const noexcept override { return static_cast<int>(steppers_.size()); }
  const env::Space& single_observation_space() const noexcept override;
  const env::Space& single_action_space() const noexcept override;
  AutoresetMode autoreset_mode() const noexcept override { return rows_.autoreset_mode; }
  std::span<const shm::TensorView> actions() const noexcept override { return rows_.actions; }

  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask = {}) override;
  void step_async() override;
  Batch wait(std::optional<std::chrono::nanoseconds> timeout = {}) override;
  std::span<const std::byte> info(int worker) override;
  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override;
  Stats stats() const override;
  void close() noexcept override;

  /// For the face that put it there: its infos without a detour through bytes.
  Stepper& stepper(int worker) { return *steppers_.at(static_cast<std::size_t>(worker)); }

 private:
  enum class Phase { kIdle, kDone, kFailed, kClosed };

  void begin(const char* call) const;
  template <class Work>
  void run(Work work);

  std::vector<std::unique_ptr<Stepper>> steppers_;
  RowStorage storage_;
  Rows rows_;
  std::vector<WorkerStats> stats_;
  std::uint64_t steps_ = 0;
  std::uint64_t resets_ = 0;
  Phase phase_ = Phase::kIdle;
  std::exception_ptr failure_;
};

}  // namespace shoal::vector
