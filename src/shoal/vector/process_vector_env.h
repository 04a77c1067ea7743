// A VectorEnv whose environments live in worker processes and whose arrays are shared memory.
//
// Death of a worker: the step or reset that it does not finish is finished for it. OnFault::kRaise:
// wait() throws process::WorkerDied (which worker, its environments, how it ended, its traceback if
// it sent one, its last log lines), and every later call throws InvalidState saying that the envs
// are closed because of it. OnFault::kRestart: its rows become truncated 1, fault 1, reward 0, obs
// the last one, or zeros where that was being written; a replacement is started at once, and
// attached and reset by the next call (a step's rows of that worker are then an autoreset's; a
// masked reset resets all of them). More than max_restarts of these within restart_window throw as
// kRaise does.
//
// Failure of an environment (its reset or step throws): the other workers finish the step; then
// wait() throws process::RemoteError with worker and environment. Which rows of that worker are
// valid is not known, so going on would train on garbage: the envs are then as after a WorkerDied.
// OnFault::kRestart treats it as the worker's death.
//
// request(): a failure of the stepper is thrown as process::RemoteError and changes nothing else; a
// death is thrown as WorkerDied, and with OnFault::kRestart the next step goes on as after any
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
  std::span<const std::byte> info(int worker) override;
  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override;
  Stats stats() const override;
  void close() noexcept override;

  /// What worker `worker` said before there were arrays; `extra` is the face's.
  const Hello& hello(int worker) const;
  /// Process id of worker `worker` as it is now.
  int pid(int worker) const;

 private:
  std::unique_ptr<ProcessEngine> engine_;
};

}  // namespace shoal::vector
