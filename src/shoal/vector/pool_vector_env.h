// A VectorEnv whose environments live in the workers of a pool: one session of it.
//
// Death of a worker: OnFault::kRaise: recv(), wait() or the next call throws process::WorkerDied,
// and every later call InvalidState. OnFault::kRestart: what was out comes back as faults, and so
// does the next step of its other environments (truncated 1, fault 1, reward 0, obs the last one,
// or zeros where that was being written); their step after that is a reset. Meanwhile a new worker
// is started, at once or after FaultPolicy::backoff; orders wait for it, other environments go on.
// OnFault::kDrop: the same rows have RowFault::kDropped; from then on the ids of dropped
// environments are left out by send(), and fill batches that would never be full.
//
// Failure of an environment: OnFault::kRaise: process::RemoteError. Otherwise it alone is replaced
// where its stepper can do that, else its worker is.
//
// More than max_restarts faults within restart_window, or no environment left, throw TooManyFaults.
//
// Threads: as VectorEnv. Fork: the child must not use it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/os/memory_use.h"
#include "shoal/vector/async_vector_env.h"
#include "shoal/vector/fault_ledger.h"
#include "shoal/vector/health.h"
#include "shoal/vector/worker_pool.h"

namespace shoal::vector {

class PoolVectorEnv final : public AsyncVectorEnv {
 public:
  /// What one worker of the pool is to build: worker i has payloads[i].
  struct Payload {
    int num_envs = 0;  // 0: it has none
    std::vector<std::byte> bytes;
  };

  /// Opens the session and waits until all workers have built their environments. `owns_pool`:
  /// close() closes the pool, too. Throws as ProcessVectorEnv does.
  PoolVectorEnv(std::shared_ptr<WorkerPool> pool, std::vector<Payload> payloads,
                const Options& options, bool owns_pool);
  ~PoolVectorEnv() override;

  PoolVectorEnv(const PoolVectorEnv&) = delete;
  PoolVectorEnv& operator=(const PoolVectorEnv&) = delete;

  std::vector<std::byte> request(int worker, std::span<const std::byte> message,
                                 std::optional<std::chrono::nanoseconds> timeout = {}) override;
  void request_async(std::span<const std::vector<std::byte>> messages) override;
  std::vector<std::vector<std::byte>> request_wait(
      std::optional<std::chrono::nanoseconds> timeout = {}) override;
  Stats stats() const override;
  std::vector<WorkerHealth> health() const override;
  void close() noexcept override { close_within(options().close_timeout); }
  void close_within(std::chrono::milliseconds timeout) noexcept override;

  /// What worker `worker` said before there were arrays; `extra` is the face's.
  const Hello& hello(int worker) const;

 private:
  /// The session in one worker of the pool.
  struct Part {
    int pool_worker = 0;
    std::vector<std::byte> payload;
    Hello hello;
    bool can_rebuild = false;
    std::uint64_t life = 0;
    bool down = false;  // it died, or could not be opened again; the next try is at restart_at
    os::Deadline restart_at{};
    bool opening = false;                      // it was opened again, and has not said hello
    bool gone = false;                         // it died, and its environments were dropped
    std::optional<process::ErrorReport> hang;  // why it was killed
  };

  void wake(int worker) override;
  sync::WaitOutcome await(sync::Gather& gather, os::Deadline deadline) override;
  bool look_around() override;
  std::vector<std::byte> take_info(int row, std::uint32_t sequence) override;
  void on_failure(int row, std::span<const std::byte> report) override;
  Fault fault_of(int row) override { return fault_of_[static_cast<std::size_t>(row)]; }

  void open_again(int worker);
  void schedule_restart(int worker);
  void keep_info(PoolMessage message);
  static process::ErrorReport report_in(std::span<const std::byte> bytes);
  void receive_hello(int worker, os::Deadline deadline);
  bool look_for_deaths();
  bool restart_due();
  bool look_for_failed_openings();
  void look_for_hangs();
  void handle_death(int worker, process::DeathCertificate certificate);
  FaultRecord record_of(int worker, const process::DeathCertificate& certificate, FaultKind kind);
  void admit(FaultRecord record);
  std::string describe(int worker) const;
  std::uint64_t ask(int worker, std::span<const std::byte> message);
  PoolMessage await_answer(int worker, std::uint64_t sequence, os::Deadline deadline);
  std::vector<std::byte> take_answer(int worker, PoolMessage answer);
  PoolMessage await_message(int worker, os::Deadline deadline, const char* waiting_for,
                            const std::function<bool(const PoolMessage&)>& wanted);
  Part& part(int worker) { return parts_[static_cast<std::size_t>(worker)]; }
  const Part& part(int worker) const { return parts_[static_cast<std::size_t>(worker)]; }

  std::shared_ptr<WorkerPool> pool_;
  const bool owns_pool_;
  const int owner_pid_;
  const std::uint32_t session_;
  std::vector<Part> parts_;  // by worker of this vector environment
  std::uint64_t exits_seen_ = 0;
  std::uint64_t sequence_ = 0;  // of requests
  struct Asked {
    int worker;
    std::uint64_t sequence;
    std::optional<PoolMessage> answer;
  };
  std::vector<Asked> asked_;  // by request_async()
  FaultLedger ledger_;
  std::vector<Fault> fault_of_;  // by row: the last that it was lost in
  os::OomWatch oom_watch_;
  HealthBoard health_;
  const std::weak_ptr<WorkerPool> asked_pool_;  // for health(), from any thread
  std::map<std::pair<int, std::uint32_t>, std::vector<std::byte>> infos_;  // by row and sequence
};

}  // namespace shoal::vector
