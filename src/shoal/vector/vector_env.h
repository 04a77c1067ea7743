// Many environments stepped as one: the interface that collectors, learners and Python see.
//
//   auto envs = VectorEnv::create("shoal/CartPole-v1", {.num_envs = 64, .num_workers = 2});
//   Batch batch = envs->reset(0);
//   … write envs->actions() …
//   batch = envs->step();
//
// Rows: environment i owns row i of every array, for its whole life and whatever worker steps it,
// so the same seeds give the same bits for every backend and every number of workers.
//
// Threads: one thread at a time. Views stay valid until the VectorEnv is destroyed, their content
// until the next step_async() or reset_async().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/shm/tensor.h"
#include "shoal/vector/autoreset.h"

namespace shoal::vector {

/// What a dead worker does to the caller.
enum class OnFault : std::uint8_t {
  kRaise,    // the next call throws WorkerDied
  kRestart,  // its rows end as truncated with `fault` set, and a new worker takes over
};

enum class Backend : std::uint8_t { kAuto, kSerial, kThread, kProcess };

struct Options {
  int num_envs = 1;
  int num_workers = 0;  // 0: one per CPU this process may use, at most one per environment
  Backend backend = Backend::kAuto;
  AutoresetMode autoreset_mode = AutoresetMode::kNextStep;
  OnFault on_fault = OnFault::kRaise;
  std::string env_args = "{}";  // JSON keyword arguments of the environment's factory

  /// Process: with exactly one worker for each CPU of this process's set, every worker is confined
  /// to a CPU of its own, and the threads it starts later with it.
  bool pin_workers = true;
  /// Process: until every worker has built its environments.
  std::chrono::milliseconds start_timeout{60'000};
  /// OnFault::kRestart: more deaths than these within the window throw.
  int max_restarts = 3;
  std::chrono::milliseconds restart_window{60'000};
  /// Process: for the environments to close; then the worker is killed.
  std::chrono::milliseconds close_timeout{10'000};
  /// Process: called about every 50 ms while a call waits. What it throws ends the wait and leaves
  /// the call under way.
  std::function<void()> interrupt_check = {};
};

/// What one worker has done so far.
struct WorkerStats {
  int first_env = 0;
  int num_envs = 0;
  int pid = 0;              // 0: a thread of this process
  std::uint64_t steps = 0;  // batches, not environments
  std::uint64_t resets = 0;
  std::uint64_t requests = 0;
  std::uint64_t busy_ns = 0;  // in reset and step
  std::uint64_t parks = 0;    // waits that went to the kernel
  std::uint64_t restarts = 0;
};

/// What the whole has done so far.
struct Stats {
  std::uint64_t steps = 0;  // batches
  std::uint64_t resets = 0;
  std::uint64_t wait_ns = 0;  // the caller, in wait()
  std::uint64_t parks = 0;    // the caller's waits that went to the kernel
  std::vector<WorkerStats> workers;
};

/// The outcome of reset or step, borrowed from the VectorEnv. All arrays have num_envs rows.
struct Batch {
  /// One per leaf of the observation space, in leaf order.
  std::span<const shm::TensorView> obs;
  std::span<const double> reward;
  std::span<const std::uint8_t> terminated;  // 0 or 1
  std::span<const std::uint8_t> truncated;   // 0 or 1
  /// 1: this step reset the row (next-step mode: its action was ignored).
  std::span<const std::uint8_t> reset;
  /// 1: the worker died; truncated is 1, obs the last one or, if that was being written, zeros.
  std::span<const std::uint8_t> fault;
  /// Like obs; rows where has_final is 1 (same-step mode).
  std::span<const shm::TensorView> final_obs;
  std::span<const std::uint8_t> has_final;
};

class VectorEnv {
 public:
  /// A VectorEnv over native environments. `id` is one of the registry's; throws InvalidArgument
  /// naming the nearest.
  static std::unique_ptr<VectorEnv> create(std::string_view id, const Options& options = {});

  virtual ~VectorEnv() = default;

  virtual int num_envs() const noexcept = 0;
  virtual int num_workers() const noexcept = 0;
  virtual const env::Space& single_observation_space() const noexcept = 0;
  virtual const env::Space& single_action_space() const noexcept = 0;
  virtual AutoresetMode autoreset_mode() const noexcept = 0;

  /// Where the next step's actions are written: one view per leaf of the action space.
  virtual std::span<const shm::TensorView> actions() const noexcept = 0;

  /// Resets the environments that `mask` selects, all of them when it is empty; the rows of the
  /// others stay as they are. Element i of `seeds` (or nothing) is environment i's seed; an empty
  /// span seeds none.
  virtual void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                           std::span<const std::uint8_t> mask = {}) = 0;
  /// Steps all environments with actions().
  virtual void step_async() = 0;
  /// The result of the reset or step that is under way. Throws TimedOut (it stays under way: wait
  /// again or close), WorkerDied, or the environment's own failure.
  virtual Batch wait(std::optional<std::chrono::nanoseconds> timeout = {}) = 0;

  /// What worker `worker`'s stepper said beyond its rows in the last reset or step; valid until the
  /// next one.
  virtual std::span<const std::byte> info(int worker);
  /// Asks worker `worker`'s stepper, in its own format. Not while a reset or step is under way.
  virtual std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                         std::optional<std::chrono::nanoseconds> timeout = {});
  virtual Stats stats() const;

  /// Ends the workers. Idempotent; called by the destructor.
  virtual void close() noexcept = 0;

  Batch reset(std::span<const std::optional<std::uint64_t>> seeds,
              std::span<const std::uint8_t> mask = {}) {
    reset_async(seeds, mask);
    return wait();
  }
  /// Environment i is seeded with seed + i, as Gymnasium does.
  Batch reset(std::uint64_t seed);
  Batch step() {
    step_async();
    return wait();
  }
};

}  // namespace shoal::vector
