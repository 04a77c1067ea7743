// A VectorEnv whose environments live in worker processes and whose arrays are shared memory.
//
// Faults (fault_policy.h). OnFault::kRaise: wait() throws process::WorkerDied (which worker, its
// environments, how it ended, its traceback if it sent one, its stack if it hung, its last log
// lines), or process::RemoteError with worker and environment where an environment's reset or step
// threw; every later call throws InvalidState saying that the envs are closed because of it. Else
// the call is finished without the rows that the fault cost, faults() tells of them, and the other
// rows are as they would have been: an environment that throws costs its own row (where its stepper
// can replace it, else those of its worker), a worker that ends or hangs costs all of its rows.
// kRestart: replacements are started when their back-off is over, placed by a later call, and reset
// by it (a step's rows of theirs are then an autoreset's; a masked reset resets all of them). A
// step waits for none of this unless no row is live; a reset waits for the rows that it selects, a
// request for the worker that it asks. Beyond the policy's limit wait() throws TooManyFaults.
//
// Memory: a worker over Options::memory_limit is replaced between calls, when the episodes of all
// its environments have ended, or by a reset of them all.
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
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/process/launcher.h"
#include "shoal/vector/patience.h"
#include "shoal/vector/sync/control_block.h"
#include "shoal/vector/sync/obs_sets.h"
#include "shoal/vector/vector_env.h"
#include "shoal/vector/workers/placement.h"
#include "shoal/vector/workers/worker_set.h"

namespace shoal::vector {

/// Invariants: a call that begins ends with every row written, by its worker or as a fault, or with
/// an exception; a worker has at most one command under way; one that owes a fault is given no
/// command until its rows ended as one; a step never waits for a worker that is away, unless all
/// are.
/// Processes: the caller's; each worker has a RoundWorker.
/// Death: of a worker: as the FaultPolicy says (worker_set.h).
class ProcessVectorEnv final : public VectorEnv, public Boarded, private WorkerEngine {
 public:
  /// Starts the workers and waits until all have said hello, at most options.start_timeout. Worker
  /// 0 has the first rows; of each spec, index and first_env are filled in here, num_envs is the
  /// number of environments that it will have; its entry runs run_pool_worker(). Of `options`,
  /// num_envs, num_workers, backend and env_args are ignored: `workers` says them.
  ///
  /// Throws InvalidArgument when the spaces of two workers differ (it names the environment and
  /// both spaces), TimedOut, process::WorkerDied, process::StartFailed, or process::RemoteError
  /// with what a worker reports.
  ProcessVectorEnv(std::shared_ptr<process::Launcher> launcher,
                   std::vector<process::WorkerSpec> workers, const Options& options);
  ~ProcessVectorEnv() override;

  ProcessVectorEnv(const ProcessVectorEnv&) = delete;
  ProcessVectorEnv& operator=(const ProcessVectorEnv&) = delete;

  int num_envs() const noexcept override { return rows_.num_envs; }
  int num_workers() const noexcept override { return set_.size(); }
  const env::Space& single_observation_space() const noexcept override {
    return set_.spaces().observation_space;
  }
  const env::Space& single_action_space() const noexcept override {
    return set_.spaces().action_space;
  }
  AutoresetMode autoreset_mode() const noexcept override { return rows_.autoreset_mode; }
  std::span<const shm::TensorView> actions() const noexcept override { return rows_.actions; }

  void reset_async(std::span<const std::optional<std::uint64_t>> seeds,
                   std::span<const std::uint8_t> mask = {}) override;
  void step_async() override;
  Batch wait(std::optional<std::chrono::nanoseconds> timeout = {}) override;
  std::function<bool(os::Deadline)> awaited() override;
  std::shared_ptr<const void> lease_obs() override { return obs_sets_.lease(); }
  std::span<const std::byte> info(int worker) override;
  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override {
    return set_.requests().request(worker, message, timeout);
  }
  void request_async(std::span<const std::vector<std::byte>> messages) override {
    set_.requests().request_async(messages);
  }
  std::vector<std::vector<std::byte>> request_wait(
      std::optional<std::chrono::nanoseconds> timeout = {}) override {
    return set_.requests().request_wait(timeout);
  }
  Presence presence(int env) const override;
  void restored(int env) override;
  Stats stats() const override;
  EnvBoard& board() noexcept override { return set_.board(); }
  std::vector<WorkerHealth> health() const override { return set_.health(); }
  /// Of the last reset or step: which rows it lost, and to what.
  std::span<const RowFaultRecord> faults() const override { return faults_; }
  void require_open(const char* call) const override { state_.require_open(call); }
  void close() noexcept override { close_within(options_.close_timeout); }
  CloseOutcome take_close_outcome() override { return set_.take_close_outcome(); }
  void close_within(std::chrono::milliseconds timeout) noexcept override { set_.close(timeout); }

  /// What worker `worker` said before there were arrays; `extra` is the face's.
  const Hello& hello(int worker) const { return set_.hello(worker); }
  /// Process id of worker `worker` as it is now.
  int pid(int worker) const { return set_.pid(worker); }

 private:
  /// The workers have been started, and are building their environments.
  struct Start {
    Start(std::shared_ptr<process::Launcher> launcher, std::vector<process::WorkerSpec> workers,
          const Options& options);
    std::vector<WorkerSet::Payload> payloads;
    int num_envs;
    std::shared_ptr<WorkerPool> pool;
  };
  ProcessVectorEnv(Start start, const Options& options);

  /// A worker's part in the call under way.
  struct Part {
    Command command = Command::kNone;  // given for it
    std::uint64_t posted = 0;  // sequence of the last command given, of this call or another
    bool has_orders = false;   // some of its rows are not to obey the command
    bool owes_fault = false;   // its rows end as a fault in this call, or in the next
    bool drains = false;       // an environment takes no order once its episode has ended
    std::vector<std::byte> large_info;  // of the last step, where it did not fit into its area
  };

  // WorkerEngine.
  int segment_fd() const override { return control_.fd(); }
  std::uint64_t prepare(int worker) override;
  void ring(int worker) override;
  Work mark_of(int worker) const noexcept override;
  std::optional<Work> work_of(int worker, std::uint64_t now_ns) override;
  bool is_busy(int worker) const override;
  bool may_lose(int worker) const override;
  void lose(int worker) override;
  void come_back(int worker) override;
  void begin_drain(int worker) override;
  bool is_drained(int worker) const override;
  void end_drain(int worker) override;
  void replace(int worker, bool keeps_generators) override;
  std::optional<std::chrono::milliseconds> hand_over_wait() const override;

  // Calls.
  void make_segment();
  void post(Command command);
  void give(int worker, Command command);
  /// Whether it has part in the call under way, and has not done it yet.
  bool is_at_work(int worker) const {
    return part(worker).command != Command::kNone && !part(worker).owes_fault && is_busy(worker);
  }
  bool somebody_is_at_work() const;
  void wait_for_workers(const Patience& patience);
  [[noreturn]] void throw_timed_out();
  Batch collect();
  void collect_from(int worker);
  void collect_failure(int worker);
  PoolMessage outcome(int worker, PoolKind kind);
  void add_later_failures(int first, process::RemoteError& failure);

  // Rows that are not in order (process_vector_env_rows.cc).
  void await_chosen_rows();
  void await_any_row(const Patience& patience);
  void pause(const Patience& patience);
  void drain_before_reset();
  bool give_orders(int worker, Command command);
  void prepare_reset(int worker, int row, bool keep_seed);
  void settle_orders(int worker);
  void rest_ended_rows(int worker);
  void lose_rows(int worker, std::vector<process::ErrorReport> reports);
  void end_rows_as_fault(int worker);
  void end_row(int row, RowFault why);
  void mark_rows_that_are_not_live();
  bool chooses(int worker, std::uint8_t chosen) const;

  Part& part(int worker) { return parts_[static_cast<std::size_t>(worker)]; }
  const Part& part(int worker) const { return parts_[static_cast<std::size_t>(worker)]; }
  const WorkerSlot& slot(int worker) const { return set_.slot(worker); }
  WorkerCell& cell(int worker) const { return control_.cell(worker); }
  FaultLedger& ledger() noexcept { return set_.faults().ledger(); }
  const FaultLedger& ledger() const noexcept { return set_.faults().ledger(); }
  Patience patience_for(std::optional<std::chrono::nanoseconds> timeout) const {
    return {Patience::deadline_of(timeout), options_.interrupt_check};
  }

  const Options options_;
  CallState state_;
  WorkerSet set_;
  Placement placement_;
  std::vector<Part> parts_;  // by worker
  ControlBlock control_;
  bool has_segment_ = false;
  Rows rows_;
  ObsSets obs_sets_;

  std::uint64_t sequence_ = 0;
  std::uint64_t posted_ns_ = 0;  // when the call under way was given to the workers
  bool posted_none_ = false;     // no worker was given anything: no row is live
  Command posted_command_ = Command::kNone;
  bool rows_have_faults_ = false;
  std::vector<RowFaultRecord> faults_;
  std::vector<std::optional<std::uint64_t>> seeds_;  // each row's last explicit one

  std::uint64_t steps_ = 0;
  std::uint64_t resets_ = 0;
  std::uint64_t wait_ns_ = 0;
  std::uint64_t parks_ = 0;
};

}  // namespace shoal::vector
