// The workers of one vector environment in processes: who starts, watches, replaces, asks and
// closes them, whatever way their environments are stepped.
//
// They are one session of a WorkerPool, which starts the processes. The engine (WorkerEngine) has
// the transport: it says where orders and results are, and what becomes of rows.
//
// Death of a worker: OnFault::kRaise: the call that sees it throws process::WorkerDied, and every
// later call InvalidState. Otherwise the engine loses the worker's environments; with kRestart new
// ones are built, at once or after FaultPolicy::backoff, in a new process, or in the worker's
// successor where it has one. Workers that end with their zygote are one fault (FaultLedger).
//
// Deadlines: a worker that passes one of the FaultPolicy's is killed, for all sessions of its pool.
//
// More than max_restarts faults within restart_window, or no environment left, throw TooManyFaults.
//
// Threads: the caller's, but for health().
// Fork: the child must not use it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shoal/os/process/making_process.h"
#include "shoal/vector/call_state.h"
#include "shoal/vector/closing.h"
#include "shoal/vector/env_board.h"
#include "shoal/vector/fault/health.h"
#include "shoal/vector/vector_env.h"
#include "shoal/vector/workers/fault_recorder.h"
#include "shoal/vector/workers/worker_engine.h"
#include "shoal/vector/workers/worker_pool.h"
#include "shoal/vector/workers/worker_recycling.h"
#include "shoal/vector/workers/worker_requests.h"
#include "shoal/vector/workers/worker_slot.h"

namespace shoal::vector {

/// Processes: the caller's.
class WorkerSet {
 public:
  /// What one worker of the pool is to build.
  struct Payload {
    int num_envs = 0;  // 0: it has none
    std::vector<std::byte> bytes;
  };

  /// Worker i of the pool has payloads[i]. `owns_pool`: close() closes the pool, too. The
  /// references outlive this. Throws InvalidState for a pool that is closed, InvalidArgument where
  /// there are no environments.
  WorkerSet(std::shared_ptr<WorkerPool> pool, std::vector<Payload> payloads, const Options& options,
            CallState& state, WorkerEngine& engine, bool owns_pool);

  WorkerSet(const WorkerSet&) = delete;
  WorkerSet& operator=(const WorkerSet&) = delete;

  /// Waits until all workers have built their environments. Throws SpacesDiffer (it names the
  /// environment and both spaces), TimedOut, process::WorkerDied, or process::RemoteError with what
  /// a worker reports.
  void open();
  /// Lets all attach to the engine's segment.
  void attach_all();
  /// Within `timeout`; what has not ended then is killed. Idempotent.
  void close(std::chrono::milliseconds timeout) noexcept;
  VectorEnv::CloseOutcome take_close_outcome() { return closing_.take(); }

  int size() const noexcept { return static_cast<int>(slots_.size()); }
  int num_envs() const noexcept { return slots_.back().end_env(); }
  /// Of every environment.
  const Hello& spaces() const noexcept { return slots_.front().hello; }
  const WorkerSlot& slot(int worker) const noexcept {
    return slots_[static_cast<std::size_t>(worker)];
  }
  /// What worker `worker` said of its environments. Throws InvalidArgument where there is none.
  const Hello& hello(int worker) const;
  /// 0 when it has no process.
  int pid(int worker) const;
  std::uint64_t restarts(int worker) const;
  /// How many new environments `row` of worker `worker` has had.
  int restarts_of(int worker, int row) const {
    return faults_.ledger().restarts(row) + slot(worker).begun_anew;
  }
  /// Any thread.
  std::vector<WorkerHealth> health() const;

  /// Deals with deadlines, the hard limit of memory, and deaths; true when a worker was lost. Throws
  /// what the policy says.
  bool watch();
  /// The same, and goes on with whatever is restarted or replaced as far as that takes no waiting;
  /// true when something has changed. Throws InvalidState where the pool was closed.
  bool poll();
  /// Whether something is going on that is worth a poll every millisecond.
  bool is_unsettled() const { return unsettled_ > 0 || recycling_.hands_over(); }
  bool is_moving() const noexcept { return recycling_.is_moving(); }

  FaultRecorder& faults() noexcept { return faults_; }
  const FaultRecorder& faults() const noexcept { return faults_; }
  WorkerRequests& requests() noexcept { return requests_; }
  WorkerPool& pool() noexcept { return *pool_; }

  /// An environment of `worker` has thrown and cannot be replaced alone: the worker is killed.
  void fail(int worker, process::ErrorReport report);
  /// A worker whose environments are all dropped is let go.
  void dismiss_if_all_are_dropped(int worker);
  /// The next message that is wanted; the engine keeps the others. Throws TimedOut and WorkerDied.
  PoolMessage await_message(int worker, os::Deadline deadline, const char* waiting_for,
                            const std::function<bool(const PoolMessage&)>& wanted);
  /// The worker is told this, as by a request, before the orders that follow.
  void tell(int worker, std::span<const std::byte> message);
  /// Whether the worker runs code of another session.
  bool serves_others(int worker) const;

  // For WorkerRecycling and WorkerRequests.

  WorkerEngine& engine() noexcept { return engine_; }
  const Options& options() const noexcept { return options_; }
  CallState& state() noexcept { return state_; }
  EnvBoard& board() noexcept { return board_; }
  std::uint32_t session() const noexcept { return session_; }
  std::uint64_t next_sequence() noexcept { return ++sequence_; }
  WorkerSlot& slot_at(int worker) noexcept { return slots_[static_cast<std::size_t>(worker)]; }
  int index_of(const WorkerSlot& slot) const { return static_cast<int>(&slot - slots_.data()); }
  void check_interrupt() const {
    if (options_.interrupt_check) options_.interrupt_check();
  }
  /// As WorkerPool::send().
  bool send(int worker, const PoolMessage& message, os::Deadline deadline = os::kNoDeadline);
  void send_open(const WorkerSlot& slot, Incarnation incarnation);
  void settle_in(WorkerSlot& slot, WorkerPool::Entry entry);
  void attach(int worker, std::vector<std::byte> handed = {});
  void tell_of_move(const WorkerSlot& slot);
  bool look_for_deaths();
  /// Kills the worker, and deals with its death.
  void end(int worker, KillReason reason);

 private:
  void receive_hellos(os::Deadline deadline);
  bool receive_hello(int worker, os::Deadline until);
  void take_hello(WorkerSlot& slot, const PoolMessage& message);
  [[noreturn]] void throw_late_start(const WorkerSlot& late);

  void look_for_hangs();
  void handle_death(int worker, PoolDeath death);
  void lose(int worker, FaultRecord record);
  void set_state(WorkerSlot& slot, WorkerSlot::State state);
  bool poll_slots();
  bool may_restart(const WorkerSlot& slot) const;
  bool restart(int worker);
  bool poll_opening(int worker);
  void mark_ready(WorkerSlot& slot);

  /// How long a worker's environments may take to close, and whether it is logged that they were
  /// not: not where the caller does not wait, waits for a call of theirs, or has an error already,
  /// and not of a worker that had ended before.
  struct Farewell {
    os::Deadline until;
    bool tells;
  };
  void close_session(WorkerPool& pool, std::span<const Farewell> farewells) noexcept;
  void await_closed(WorkerPool& pool, const WorkerSlot& slot, const Farewell& farewell);

  std::shared_ptr<WorkerPool> pool_;
  const bool owns_pool_;
  const os::MakingProcess maker_;
  const std::uint32_t session_;
  const Options& options_;
  CallState& state_;
  WorkerEngine& engine_;
  std::vector<WorkerSlot> slots_;
  HealthTable health_;
  EnvBoard board_;
  FaultRecorder faults_;
  WorkerRequests requests_;
  WorkerRecycling recycling_;
  Closing closing_;
  int unsettled_ = 0;                        // slots that are away or opening
  std::uint64_t hangs_seen_ns_ = 0;          // when they were looked for last
  std::optional<std::uint64_t> exits_seen_;  // none: somebody may have ended that was not looked at
  std::uint64_t sequence_ = 0;               // of requests
  const std::weak_ptr<WorkerPool> asked_pool_;  // for health(), from any thread
};

/// The error report that a message holds, or one that says that it was lost.
process::ErrorReport report_in(std::span<const std::byte> bytes);

}  // namespace shoal::vector
