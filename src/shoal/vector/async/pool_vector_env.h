// A VectorEnv whose environments live in the workers of a pool: one session of it.
//
// Death of a worker: OnFault::kRaise: recv(), wait() or the next call throws process::WorkerDied,
// and every later call InvalidState. OnFault::kRestart: what was out comes back as faults, and so
// does the next step of its other environments (truncated 1, fault 1, reward 0, obs the last one,
// or zeros where that was being written); their step after that is a reset. Meanwhile a new worker
// is started, at once or after FaultPolicy::backoff; orders wait for it, other environments go on.
// OnFault::kDrop: the same rows have RowFault::kFault; from then on the ids of dropped
// environments are left out by send(), and fill batches that would never be full (kDropped).
//
// Failure of an environment: OnFault::kRaise: process::RemoteError. Otherwise it alone is replaced
// where its stepper can do that, after its back-off, else its worker is.
//
// Memory: a worker over Options::memory_limit is replaced between episodes, for each session of its
// pool when the environments of that one are drained; what is in flight elsewhere goes on. A successor
// that fails costs nothing but a warning.
//
// Deadlines and limits: worker_set.h.
//
// Threads: as VectorEnv.
// Fork: the child must not use it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shoal/sync/spin_policy.h"
#include "shoal/vector/async/async_vector_env.h"
#include "shoal/vector/workers/worker_set.h"

namespace shoal::vector {

/// Processes: the caller's; each worker has an AsyncWorker.
class PoolVectorEnv final : public AsyncVectorEnv, private WorkerEngine {
 public:
  using Payload = WorkerSet::Payload;

  /// Opens the session and waits until all workers have built their environments: worker i of the
  /// pool those of payloads[i]. `owns_pool`: close() closes the pool, too. Throws as
  /// ProcessVectorEnv does.
  PoolVectorEnv(std::shared_ptr<WorkerPool> pool, std::vector<Payload> payloads,
                const Options& options, bool owns_pool);
  ~PoolVectorEnv() override;
  EnvBoard& board() noexcept override { return set_.board(); }

  PoolVectorEnv(const PoolVectorEnv&) = delete;
  PoolVectorEnv& operator=(const PoolVectorEnv&) = delete;

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
  std::function<bool(os::Deadline)> awaited() override { return awaited_batch(); }
  Stats stats() const override;
  std::vector<WorkerHealth> health() const override { return set_.health(); }
  void close() noexcept override { close_within(options().close_timeout); }
  void close_within(std::chrono::milliseconds timeout) noexcept override { set_.close(timeout); }
  CloseOutcome take_close_outcome() override { return set_.take_close_outcome(); }

  /// What worker `worker` said before there were arrays; `extra` is the face's.
  const Hello& hello(int worker) const { return set_.hello(worker); }

 private:
  // AsyncVectorEnv's host.
  void wake(int worker) override;
  void tell(int worker, std::span<const std::byte> message) override;
  sync::WaitOutcome await(sync::Gather& gather, os::Deadline deadline) override;
  bool look_around() override;
  std::optional<std::vector<std::byte>> take_info(int row, std::uint32_t sequence,
                                                  bool may_come) override;
  void on_failure(int row, std::span<const std::byte> report) override;
  Fault fault_of(int row) override { return set_.faults().last_of(row); }
  bool is_unsettled() const override { return backing_off_ > 0 || set_.is_unsettled(); }
  int restarts_of(std::size_t row) const override {
    return set_.restarts_of(worker_of(static_cast<int>(row)), static_cast<int>(row));
  }
  void is_back(std::size_t row) override { ledger().back(static_cast<int>(row)); }
  void end_back_off(std::size_t row) override;

  // WorkerEngine.
  int segment_fd() const override { return segment().fd(); }
  std::uint64_t prepare(int worker) override;
  Work mark_of(int worker) const noexcept override;
  std::optional<Work> work_of(int worker, std::uint64_t now_ns) override;
  bool is_busy(int) const override { return flight().count() > 0; }
  void keep(int worker, PoolMessage message) override;
  void lose(int worker) override;
  void come_back(int worker) override;
  void drop(int worker) override;
  void begin_drain(int worker) override { begin_draining(worker); }
  bool is_drained(int worker) const override { return all_drained(worker); }
  void end_drain(int worker) override;
  void replace(int worker, bool keeps_generators) override;

  /// Since when a worker does not take its orders, and how many it had obeyed then; 0: it does.
  struct Stall {
    std::uint64_t since_ns = 0;
    std::uint64_t obeyed = 0;
  };

  FaultLedger& ledger() noexcept { return set_.faults().ledger(); }
  std::optional<Work> stall_of(int worker, std::uint64_t now_ns);
  bool is_backing_off(std::size_t row) const {
    return (flight().env(row).hold & InFlight::kBackOff) != 0;
  }
  void end_back_offs();

  WorkerSet set_;
  sync::SpinPolicy spin_policy_;  // of the caller: it spins where there is a CPU for it as well
  std::vector<Stall> stalls_;     // by worker
  int backing_off_ = 0;           // environments that are to come later
  std::map<int, std::pair<std::uint32_t, std::vector<std::byte>>>
      infos_;  // the last one of a row, with its sequence
};

}  // namespace shoal::vector
