// Worker processes that several vector environments share.
//
//   auto pool = WorkerPool::start(launcher, native_pool_specs(2), {});
//   PoolVectorEnv train(pool, …), eval(pool, …);
//
// Every vector environment is a session of the pool: its environments are divided among the pool's
// workers, it has a segment of its own, and closing it leaves the others alone. The pool ends when
// it is closed, or when nobody holds it any more.
//
// Threads: any; sessions may belong to different threads. Death of a worker: every session that had
// environments there sees it; the first that wants a restart makes it, for all of them. Fork: the
// child must not use it; its destructor there leaves the workers alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/process/board.h"
#include "shoal/process/launcher.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/fault_account.h"
#include "shoal/vector/pool_doors.h"
#include "shoal/vector/pool_messages.h"

namespace shoal::vector {

struct PoolOptions {
  /// As Options::pin_workers.
  bool pin_workers = true;
  /// What the workers share; nullptr: one that only they see.
  std::shared_ptr<process::Board> board = {};
  /// For the environments to close; then the workers are killed.
  std::chrono::milliseconds close_timeout{10'000};
};

/// The end of a worker, as its sessions are told of it. A value.
struct PoolDeath {
  process::DeathCertificate certificate;
  std::optional<KillReason> reason;  // where a session has ended it
  std::uint32_t session = 0;         // which one
};

class WorkerPool {
 public:
  /// Starts the workers; `specs` say entry and payload. Throws what Launcher::start() throws.
  WorkerPool(std::shared_ptr<process::Launcher> launcher, std::vector<process::WorkerSpec> specs,
             PoolOptions options = {});
  ~WorkerPool() { close(); }

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int num_workers() const noexcept { return static_cast<int>(seats_.size()); }
  /// Process id of worker `worker` as it is now; 0 when it has none.
  int pid(int worker) const;
  std::uint64_t restarts(int worker) const;
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// Ends the workers. Its sessions fail from then on. Idempotent.
  void close() noexcept { close_within(options_.close_timeout); }
  void close_within(std::chrono::milliseconds timeout) noexcept;

  // For sessions.

  std::uint32_t new_session() noexcept { return next_session_.fetch_add(1); }
  /// Which life of a worker this is; another one after a restart. What a session opened in an
  /// older one is gone.
  std::uint64_t life(int worker) const;
  bool dead(int worker, std::uint64_t life) const;
  /// How many workers have ended: nothing has died while it stays the same.
  std::uint64_t exits() const noexcept {
    return exits_->load(std::memory_order_acquire);  // [exits]
  }
  /// Of the life of worker `worker` that has ended, or is about to.
  PoolDeath death(int worker, std::uint64_t life);
  /// Begins a new life, unless `life` is not the last one. Throws what Launcher::start() throws.
  void restart(int worker, std::uint64_t life);
  /// Kills a worker for what an environment of `session` does, and waits for its end; the first
  /// reason counts.
  void end(int worker, std::uint64_t life, std::uint32_t session, KillReason reason);

  /// Tells a worker to end, and does not wait.
  void dismiss(int worker, std::uint64_t life) noexcept;

  /// Where a worker that does not answer is: its stack, as text.
  std::string stack(int worker, std::uint64_t life, std::chrono::milliseconds timeout);

  /// Wakes a worker for its orders.
  void ring(int worker) noexcept { doors_.door(worker).bell.ring(); }
  /// Sends a message with at most one descriptor; that the worker is gone shows later.
  void send(int worker, const PoolMessage& message, int fd = -1);
  /// The next message of a session's from a worker; nothing when none comes until `deadline`.
  /// Messages to other sessions are kept for them.
  std::optional<PoolMessage> receive(std::uint32_t session, int worker, os::Deadline deadline);
  /// All messages of one kind that worker `worker` has sent to a session; never waits.
  std::vector<PoolMessage> take_all(std::uint32_t session, int worker, PoolKind kind);
  /// A worker that does not answer is not waited for when the pool closes.
  void give_up(int worker) noexcept;
  /// Which session's code worker `worker` runs; 0: none. A hint.
  std::uint32_t serving(int worker) const noexcept {
    return doors_.door(worker).serving.load(std::memory_order_relaxed);  // relaxed: a hint
  }
  /// Forgets what came for a session.
  void forget(std::uint32_t session) noexcept;

 private:
  struct Seat {
    process::WorkerSpec spec;
    std::unique_ptr<process::WorkerProcess> process;
    std::uint64_t life = 0;
    bool given_up = false;
    std::optional<process::ErrorReport> report;  // of its end, where it was read already
    std::optional<KillReason> killed;            // by this side
    std::uint32_t killed_for = 0;                // the session that did
    std::optional<PoolDeath> last_death;         // of the life before
  };

  void start(std::span<Seat*> seats);
  void welcome(Seat& seat);
  static PoolDeath end_of(Seat& seat);
  bool take_message(Seat& seat, int worker, os::Deadline deadline);
  Seat& seat(int worker) { return seats_[static_cast<std::size_t>(worker)]; }
  const Seat& seat(int worker) const { return seats_[static_cast<std::size_t>(worker)]; }

  const int owner_pid_;
  std::shared_ptr<process::Launcher> launcher_;
  PoolOptions options_;
  std::vector<int> cpus_;  // of the workers, by index; empty: wherever the kernel puts them
  std::shared_ptr<std::atomic<std::uint64_t>> exits_;  // counted by the supervisor thread
  PoolDoors doors_;
  std::atomic<std::uint32_t> next_session_{1};
  std::atomic<bool> closed_{false};

  mutable std::mutex mutex_;  // of what follows
  std::vector<Seat> seats_;
  std::map<std::pair<std::uint32_t, int>, std::deque<PoolMessage>> inbox_;  // by session and worker
};

/// The CPUs for `workers` workers to be confined to, one each; empty where that would not help.
std::vector<int> pool_cpus(bool pin_workers, std::size_t workers);

}  // namespace shoal::vector
