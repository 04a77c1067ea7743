// Worker processes that several vector environments share.
//
//   auto pool = WorkerPool::start(launcher, native_pool_specs(2), {});
//   PoolVectorEnv train(pool, …), eval(pool, …);
//
// Every vector environment is a session of the pool: its environments are divided among the pool's
// workers, it has a segment of its own, and closing it leaves the others alone. The pool ends when
// it is closed, or when nobody holds it any more.
//
// Lives: a worker is one process after another. Usually there is one at a time; while a worker is
// replaced because of its memory there are two or more: each session moves to the newest when that
// suits it, and a process ends when the last session has left it.
//
// Threads: any; sessions may belong to different threads. Death of a worker: every session that had
// environments there sees it; the first that wants a restart makes it, for all of them.
// Fork: the child must not use it; its destructor there leaves the workers alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/process/board.h"
#include "shoal/process/launcher.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/fault_account.h"
#include "shoal/vector/pool_door.h"
#include "shoal/vector/pool_messages.h"
#include "shoal/vector/worker_cpus.h"

namespace shoal::vector {

struct PoolOptions {
  /// As Options::pin_workers.
  bool pin_workers = true;
  /// As Options::cpus.
  std::vector<std::vector<int>> cpus = {};
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

/// One process of a worker's; `number` counts from 1. A value.
struct PoolLife {
  int worker = 0;
  std::uint64_t number = 0;
  bool operator==(const PoolLife&) const = default;
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
  int pid(int worker) const { return pid(newest(worker)); }
  /// How often a worker that had died was started anew.
  std::uint64_t restarts(int worker) const;
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// Ends the workers. Its sessions fail from then on. Idempotent.
  void close() noexcept { close_within(options_.close_timeout); }
  void close_within(std::chrono::milliseconds timeout) noexcept;

  // For sessions. A life that is gone is dead: what is sent to it is lost, and nothing comes.

  std::uint32_t new_session() noexcept { return next_session_.fetch_add(1); }
  PoolLife newest(int worker) const;

  struct Entry {
    PoolLife life;
    std::shared_ptr<PoolDoor> door;
  };
  /// `session` is to have environments in the newest life of a worker, until it leaves.
  Entry enter(int worker, std::uint32_t session);
  /// The same in a younger life than `old`: the newest, or where that is dead or `old` itself, one
  /// that begins now. Throws what Launcher::start() throws, and InvalidState after close().
  Entry enter_younger(PoolLife old, std::uint32_t session);
  /// Whether enter_younger() would return at once; else what it waits for is under way
  /// (Launcher::ready()).
  bool can_enter_younger(PoolLife old);
  /// A process ends when nobody is left in it, unless it is the newest of its worker.
  void leave(PoolLife life, std::uint32_t session) noexcept;
  /// Leaves all lives.
  void forget(std::uint32_t session) noexcept;
  /// Kills the processes that were told to end and have not in time.
  void tidy() noexcept;

  int pid(PoolLife life) const;
  bool dead(PoolLife life) const;
  /// How many workers have ended: nothing has died while it stays the same.
  std::uint64_t exits() const noexcept {
    return exits_->load(std::memory_order_acquire);  // [exits]
  }
  /// Of a life that has ended, or is about to.
  PoolDeath death(PoolLife life);
  /// Kills a worker for what an environment of `session` does, and waits for its end; the first
  /// reason counts.
  void end(PoolLife life, std::uint32_t session, KillReason reason);
  /// Tells a worker to end, and does not wait.
  void dismiss(PoolLife life) noexcept;
  /// Where a worker that does not answer is: its stack, as text.
  std::string stack(PoolLife life, std::chrono::milliseconds timeout);

  /// Sends a message with at most one descriptor, and wakes the worker; that it is gone shows
  /// later.
  void send(PoolLife life, const PoolMessage& message, int fd = -1);
  /// The next message of a session's from a worker; nothing when none comes until `deadline`.
  /// Messages to other sessions are kept for them.
  std::optional<PoolMessage> receive(std::uint32_t session, PoolLife life, os::Deadline deadline);
  /// All messages of one kind that a worker has sent to a session; never waits.
  std::vector<PoolMessage> take_all(std::uint32_t session, PoolLife life, PoolKind kind);
  /// A worker that does not answer is not waited for when the pool closes.
  void give_up(PoolLife life) noexcept;

 private:
  struct Life {
    std::uint64_t number = 0;
    std::unique_ptr<process::WorkerProcess> process;
    std::shared_ptr<PoolDoor> door;
    std::set<std::uint32_t> sessions;
    bool given_up = false;
    std::optional<os::Deadline> leaving;         // it was told to end: until then, or it is killed
    std::optional<process::ErrorReport> report;  // of its end, where it was read already
    std::optional<KillReason> killed;            // by this side
    std::uint32_t killed_for = 0;                // the session that did

    bool dead() const { return process->exit_status().has_value(); }
    bool can_follow(PoolLife old) const { return !dead() && number > old.number; }
  };
  struct Seat {
    process::WorkerSpec spec;
    std::list<Life> lives;  // the newest is the last; the others have sessions, or are leaving
    std::uint64_t restarts = 0;
  };

  void start(std::span<Seat*> seats);
  void welcome(const Seat& seat, Life& life);
  void tell_to_end(Life& life) noexcept;
  void let_go(Seat& seat) noexcept;
  bool take_message(int worker, Life& life, os::Deadline deadline);
  Life* find(PoolLife life) noexcept;
  const Life* find(PoolLife life) const noexcept {
    return const_cast<WorkerPool*>(this)->find(life);
  }
  Seat& seat(int worker) { return seats_[static_cast<std::size_t>(worker)]; }
  const Seat& seat(int worker) const { return seats_[static_cast<std::size_t>(worker)]; }

  const int owner_pid_;
  std::shared_ptr<process::Launcher> launcher_;
  PoolOptions options_;
  const WorkerCpus cpus_;
  std::shared_ptr<std::atomic<std::uint64_t>> exits_;  // counted by the supervisor thread
  std::atomic<std::uint32_t> next_session_{1};
  std::atomic<bool> closed_{false};

  mutable std::mutex mutex_;  // of what follows
  std::vector<Seat> seats_;
  std::map<std::tuple<std::uint32_t, int, std::uint64_t>, std::deque<PoolMessage>>
      inbox_;  // by session, worker and life
};

}  // namespace shoal::vector
