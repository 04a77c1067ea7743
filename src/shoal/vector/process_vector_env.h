// A VectorEnv whose environments live in worker processes and whose arrays are shared memory.
//
// Faults (fault_policy.h). OnFault::kRaise: wait() throws process::WorkerDied (which worker, its
// environments, how it ended, its traceback if it sent one, its stack if it hung, its last log
// lines), or process::RemoteError with worker and environment where an environment's reset or step
// threw; every later call throws InvalidState saying that the envs are closed because of it. Else
// the call is finished without the rows that the fault cost, faults() tells of them, and the other
// rows are as they would have been: an environment that throws costs its own row (where its stepper
// can replace it, else those of its worker), a worker that ends or hangs costs all of its rows.
// kRestart: replacements are started when their back-off is over, seated by a later call, and reset
// by it (a step's rows of theirs are then an autoreset's; a masked reset resets all of them). A
// step waits for none of this unless no row is live; a reset waits for the rows that it selects, a
// request for the worker that it asks. Beyond the policy's limit wait() throws TooManyFaults.
//
// Requests: a failure of the stepper is thrown as process::RemoteError and changes nothing else; a
// death is thrown as WorkerDied, and but for OnFault::kRaise the next step goes on as after any
// death.
//
// Threads: as VectorEnv.
//
// Fork: the child must not use it; its destructor there leaves the workers alone.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/process/launcher.h"
#include "shoal/vector/stepper.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

class ProcessEngine;

class ProcessVectorEnv final : public VectorEnv {
 public:
  /// Starts the workers and waits until all have said hello, at most options.start_timeout. Worker
  /// 0 has the first rows; of each spec, index and first_env are filled in here, num_envs is the
  /// number of environments that it will have. Of `options`, num_envs, num_workers, backend and
  /// env_args are ignored: `workers` says them.
  ///
  /// Throws InvalidArgument when the spaces of two workers differ (it names the environment and
  /// both spaces), TimedOut, process::WorkerDied, process::StartFailed, or process::RemoteError
  /// with what a worker reports.
  ProcessVectorEnv(std::shared_ptr<process::Launcher> launcher,
                   std::vector<process::WorkerSpec> workers, const Options& options);
  ~ProcessVectorEnv() override;

  ProcessVectorEnv(const ProcessVectorEnv&) = delete;
  ProcessVectorEnv& operator=(const ProcessVectorEnv&) = delete;

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
  std::shared_ptr<const void> lease_obs() override;
  std::span<const std::byte> info(int worker) override;
  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override;
  void request_async(std::span<const std::vector<std::byte>> messages) override;
  std::vector<std::vector<std::byte>> request_wait(
      std::optional<std::chrono::nanoseconds> timeout = {}) override;
  Presence presence(int env) const override;
  void restored(int env) override;
  Stats stats() const override;
  std::vector<WorkerHealth> health() const override;
  std::span<const RowFaultRecord> faults() const override;
  void close() noexcept override;
  CloseOutcome take_close_outcome() override;
  void close_within(std::chrono::milliseconds timeout) noexcept override;

  /// What worker `worker` said before there were arrays; `extra` is the face's.
  const Hello& hello(int worker) const;
  /// Process id of worker `worker` as it is now.
  int pid(int worker) const;

 private:
  std::unique_ptr<ProcessEngine> engine_;
};

}  // namespace shoal::vector
