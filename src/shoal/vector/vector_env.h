// Many environments stepped as one: the interface that collectors, learners and Python see.
//
//   auto envs = VectorEnv::create("shoal/CartPole-v1", {.num_envs = 64, .num_workers = 2});
//   Batch batch = envs->reset(0);
//   for (std::int64_t& action : envs->actions()[0].as<std::int64_t>()) action = 1;
//   batch = envs->step();
//
// Rows: environment i owns row i of every array, for its whole life and whatever worker steps it,
// so the same seeds give the same bits for every backend and every number of workers.
//
// Threads: one thread at a time (see gate()). Views stay valid until the VectorEnv is destroyed, their content
// until the next step_async() or reset_async().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/os/clock.h"
#include "shoal/process/error_report.h"
#include "shoal/process/identity/shared_state.h"
#include "shoal/process/identity/worker_setup.h"
#include "shoal/process/launcher.h"
#include "shoal/shm/tensor.h"
#include "shoal/vector/async_errors.h"
#include "shoal/vector/call_gate.h"
#include "shoal/vector/fault/fault_policy.h"
#include "shoal/vector/fault/health.h"
#include "shoal/vector/step/autoreset.h"

namespace shoal::vector {

enum class Backend : std::uint8_t { kAuto, kSerial, kThread, kProcess };

struct Options {
  int num_envs = 1;
  /// 0: one per CPU that this process may use, at most one per environment. Of threads, as many run
  /// as there are CPUs, more only where environments sleep.
  int num_workers = 0;
  Backend backend = Backend::kAuto;
  AutoresetMode autoreset_mode = AutoresetMode::kNextStep;
  FaultPolicy faults = {};
  /// Process: large observations are written to several sets of arrays, so that lease_obs() can
  /// lend them.
  bool lend_obs = false;
  /// Process: a worker with more memory of its own (resident, without files and shared memory) than
  /// this is replaced between episodes, by one that takes its environments' generators over (a
  /// stepper that hands nothing over goes on as after a restart). Rows whose episode has ended are
  /// down until those of the same worker have ended theirs; in arrival order they come later. With
  /// autoreset disabled only an explicit reset of all of a worker's rows is such a moment. 0: no
  /// limit.
  std::uint64_t memory_limit = 0;
  /// Process: with more than this it is killed, which is a fault. 0: no limit.
  std::uint64_t memory_hard_limit = 0;
  std::string env_args = "{}";  // JSON keyword arguments of the environment's factory
  /// What the workers share as process::this_worker().counter(…); nullptr: one that only they see.
  std::shared_ptr<process::SharedState> shared_state = {};

  /// Rows of a batch of recv(), in the order in which they are ready; 0: all of them, stepped
  /// together. The environments are then stepped one by one, whoever is ready first.
  int batch_size = 0;
  /// Instead of arrival order: environments [c * num_envs / cohorts, (c + 1) * num_envs / cohorts)
  /// are cohort c, and recv() hands out cohort 0, 1, …, 0, 1, … in this order; 0: arrival order.
  int cohorts = 0;
  /// send() refuses to have more than these in flight; 0: num_envs.
  int max_in_flight = 0;

  /// Process: with exactly one worker for each CPU of this process's set, every worker is confined
  /// to a CPU of its own, and the threads it starts later with it.
  bool pin_workers = true;
  /// Process: instead, worker i is confined to the CPUs cpus[i % cpus.size()]; empty: as
  /// pin_workers says.
  std::vector<std::vector<int>> cpus = {};
  /// Process, native environments: starts the workers. nullptr: one with LaunchOptions as they are.
  std::shared_ptr<process::Launcher> launcher = {};
  /// Process, native environments: what the workers do first.
  process::WorkerSetup setup = {};
  /// Whether environments may be stepped that were never reset.
  bool step_before_reset = false;
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
  std::uint64_t steals = 0;  // thread: chunks taken from other workers' shares
};

/// What the whole has done so far.
struct Stats {
  std::uint64_t steps = 0;  // batches
  std::uint64_t resets = 0;
  std::uint64_t wait_ns = 0;  // the caller, in wait()
  std::uint64_t parks = 0;    // the caller's waits that went to the kernel
  /// Where the workers of processes are, and why, for people; empty on other backends.
  std::string placement;
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
  /// RowFault: not 0 where the row is no transition. Then truncated is 1, reward 0, obs the last
  /// one or, if that was being written, zeros.
  std::span<const std::uint8_t> fault;
  /// Like obs; rows where has_final is 1 (same-step mode).
  std::span<const shm::TensorView> final_obs;
  std::span<const std::uint8_t> has_final;
  /// Of the episodes that ended in this step, where statistics are kept (env::EpisodeOptions): the
  /// sum of the rewards, the number of steps, the time.
  std::span<const double> episode_return{};
  std::span<const std::int64_t> episode_length{};
  std::span<const double> episode_seconds{};
};

/// What recv() hands out: batch_size rows.
struct Arrivals {
  /// What environment env_ids[slot] said beyond its row, in its stepper's format.
  struct Info {
    int slot = 0;  // -1: a worker's, of all its rows (where all are stepped together)
    std::span<const std::byte> bytes;  // valid until the next call of the VectorEnv
  };

  Batch batch;
  std::span<const std::int64_t> env_ids;  // whose row it is, one a row
  std::vector<Info> infos;                // of those that said something
  /// Keeps batch and env_ids as they are for as long as somebody has it, also beyond the
  /// VectorEnv's end. Null: they are valid until the next call.
  std::shared_ptr<const void> lease;
};

/// Processes: the one that made it; a forked child must not use it.
/// Death: of a worker: as FaultPolicy says. Of this process: its workers end with it.
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

  /// What wait() or recv() would wait for now, for another thread to wait for: until it is there,
  /// `deadline` at the latest; true: it is. One that is there may still be one too early: then wait
  /// again. Valid while this VectorEnv exists. Null where nobody else can: nothing is under way, or
  /// the caller does the work itself.
  virtual std::function<bool(os::Deadline deadline)> awaited() { return {}; }

  /// Lends the observations of the last result: as long as a copy of the lease and this VectorEnv
  /// exist, later results go elsewhere. Empty when they cannot be lent now, or are not worth it:
  /// copy them. A holder may write into them; a later masked reset then takes the rows that it
  /// leaves alone from there.
  virtual std::shared_ptr<const void> lease_obs() { return {}; }

  // Asynchronous use: some environments are stepped while the caller decides about others. An
  // environment is in flight from send() until recv() hands out its row; while any is,
  // reset_async() and step_async() throw InvalidState. Refused calls change nothing: nothing is
  // sent in part.

  /// Rows of what recv() hands out: Options::batch_size, or num_envs.
  virtual int batch_size() const noexcept { return num_envs(); }
  virtual int in_flight() const noexcept { return static_cast<int>(sent_count_); }
  /// Steps these environments with their rows of actions(), which are not to be written again until
  /// they are back. Throws InvalidArgument for an id that is out of range or there twice;
  /// AlreadyInFlight for one that is in flight and for more than max_in_flight; NotReset for one
  /// that was never reset.
  virtual void send(std::span<const std::int64_t> env_ids);
  /// Resets the environments that `mask` selects, as reset_async() does, and puts them in flight.
  virtual void send_reset(std::span<const std::optional<std::uint64_t>> seeds,
                          std::span<const std::uint8_t> mask = {});
  /// The next batch_size results: those that were ready first, or the next cohort's. Throws
  /// NothingInFlight when too few are in flight, TimedOut naming those that are late (call it
  /// again), WorkerDied, or the environment's own failure.
  virtual Arrivals recv(std::optional<std::chrono::nanoseconds> timeout = {});
  /// Waits for all that is in flight and throws it away.
  virtual void discard(std::optional<std::chrono::nanoseconds> timeout = {});

  /// What worker `worker`'s stepper said beyond its rows in the last reset or step; valid until the
  /// next one.
  virtual std::span<const std::byte> info(int worker);
  /// Asks worker `worker`'s stepper, in its own format. Not while a reset or step is under way.
  virtual std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                         std::optional<std::chrono::nanoseconds> timeout = {});
  /// Asks all steppers at once: one message a worker, where an empty one asks nothing.
  virtual void request_async(std::span<const std::vector<std::byte>> messages);
  /// The answers to request_async(), by worker; empty where nothing was asked. Throws TimedOut (it
  /// stays under way: wait again or close), or, when all have answered, WorkerDied or the first
  /// stepper's own failure.
  virtual std::vector<std::vector<std::byte>> request_wait(
      std::optional<std::chrono::nanoseconds> timeout = {});
  /// What there is of an environment between two calls.
  enum class Presence : std::uint8_t {
    kThere,
    kNew,      // the one before it was lost, and it has not been reset
    kDropped,  // nothing, for ever
  };
  virtual Presence presence(int /*env*/) const { return Presence::kThere; }
  /// Environment `env` was given another state (engine_request.h): it goes on from there.
  virtual void restored(int /*env*/) {}
  virtual Stats stats() const;
  /// How every worker is. Any thread may ask, also while a call is under way; it never waits.
  virtual std::vector<WorkerHealth> health() const;
  /// Of the last reset or step: the rows that it lost to a fault, and to which. Valid until the
  /// next one.
  virtual std::span<const RowFaultRecord> faults() const { return {}; }

  /// Throws InvalidState where close() or a failure has ended them; `call` is the name for the
  /// message, which says why.
  virtual void require_open(const char* /*call*/) const {}
  /// Ends the workers. Idempotent; called by the destructor.
  virtual void close() noexcept = 0;
  /// close(), but a worker that has not ended within `timeout` is killed.
  virtual void close_within(std::chrono::milliseconds timeout) noexcept;

  /// For callers that cannot keep to one thread at a time, or to no close() in the midst of a call. Nothing here asks it.
  CallGate& gate() noexcept { return gate_; }

  /// What close() cannot throw.
  struct CloseOutcome {
    std::vector<process::RemoteError> failures;  // of environments in workers, while they closed
    std::exception_ptr interrupt;  // what Options::interrupt_check threw: the rest was killed
  };
  /// Of the close() before, once.
  virtual CloseOutcome take_close_outcome() { return {}; }

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

 private:
  CallGate gate_;
  // Of the default send() and recv(), which step all environments at once.
  std::vector<std::uint8_t> sent_;
  std::size_t sent_count_ = 0;
  bool launched_ = false;
  std::vector<std::int64_t> all_ids_;
};

}  // namespace shoal::vector
