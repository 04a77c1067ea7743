// Worker processes that several vector environments share.
//
//   auto pool = WorkerPool::start(launcher, native_pool_specs(2), {});
//   PoolVectorEnv train(pool, …), eval(pool, …);
//
// Every vector environment is a session of the pool: its environments are divided among the pool's
// workers, it has a segment of its own, and closing it leaves the others alone. The pool ends when
// it is closed, or when nobody holds it any more. A pool of rounds (PoolOptions::rounds) has one
// session only, the workers of one ProcessVectorEnv.
//
// Incarnations: a worker is one process after another. Usually there is one at a time; while a
// worker is replaced because of its memory there are two or more: each session moves to the newest
// when that suits it, and a process ends when the last session has left it.
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
#include "shoal/os/process/making_process.h"
#include "shoal/process/identity/shared_state.h"
#include "shoal/process/launcher.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/fault/fault_account.h"
#include "shoal/vector/workers/pool_door.h"
#include "shoal/vector/workers/pool_messages.h"
#include "shoal/vector/workers/worker_cpus.h"

namespace shoal::vector {

struct PoolOptions {
  /// As Options::pin_workers.
  bool pin_workers = true;
  /// As Options::cpus.
  std::vector<std::vector<int>> cpus = {};
  /// What the workers share; nullptr: one that only they see.
  std::shared_ptr<process::SharedState> shared_state = {};
  /// For the environments to close; then the workers are killed.
  std::chrono::milliseconds close_timeout{10'000};
  /// All environments are of one session, and stepped together: every worker builds those that its
  /// WorkerSpec counts as soon as it has started, and serves nobody else.
  bool rounds = false;
};

/// The session of a pool of rounds.
inline constexpr std::uint32_t kRoundSession = 1;

/// The end of a worker, as its sessions are told of it. A value.
struct PoolDeath {
  process::DeathCertificate certificate;
  std::optional<KillReason> reason;  // where a session has ended it
  std::uint32_t session = 0;         // which one
};

/// One process of a worker's; `number` counts from 1. A value.
struct Incarnation {
  int worker = 0;
  std::uint64_t number = 0;
  bool operator==(const Incarnation&) const = default;
};

/// Processes: the one that made it, and those that it starts.
/// Death: of a worker: its sessions are told by a PoolDeath. Of this process: the workers end
/// with it.
class WorkerPool {
 public:
  /// Starts the workers; `specs` say entry and payload. Throws what Launcher::start() throws.
  WorkerPool(std::shared_ptr<process::Launcher> launcher, std::vector<process::WorkerSpec> specs,
             PoolOptions options = {});
  ~WorkerPool() { close(); }

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int num_workers() const noexcept { return static_cast<int>(slots_.size()); }
  /// Process id of worker `worker` as it is now; 0 when it has none.
  int pid(int worker) const { return pid(newest(worker)); }
  /// How often a worker that had died was started anew.
  std::uint64_t restarts(int worker) const;
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// Ends the workers. Its sessions fail from then on. Idempotent.
  void close() noexcept { close_within(options_.close_timeout); }
  void close_within(std::chrono::milliseconds timeout) noexcept;

  // Where the workers run (WorkerCpus). In a pool of rounds place() is called when they attach.

  bool rounds() const noexcept { return options_.rounds; }
  int choice_of_cpus() const noexcept { return cpus_.choice(); }
  int first_cpu() const noexcept { return cpus_.first(); }
  /// As WorkerCpus::spread(), for those that are there and those that come.
  void spread(int count, int caller) noexcept;
  void place(Incarnation incarnation) noexcept;

  // For sessions. One that is gone is dead: what is sent to it is lost, and nothing comes.

  std::uint32_t new_session() noexcept { return next_session_.fetch_add(1); }
  Incarnation newest(int worker) const;

  struct Entry {
    Incarnation incarnation;
    std::shared_ptr<PoolDoor> door;
  };
  /// `session` is to have environments in the newest incarnation of a worker, until it leaves.
  Entry enter(int worker, std::uint32_t session);
  /// The same in a younger incarnation than `old`: the newest, or where that is dead or `old`
  /// itself, one that begins now. Throws what Launcher::start() throws, and InvalidState after close().
  Entry enter_younger(Incarnation old, std::uint32_t session);
  /// Whether enter_younger() would return at once; else what it waits for is under way
  /// (Launcher::ready()).
  bool can_enter_younger(Incarnation old);
  /// A process ends when nobody is left in it, unless it is the newest of its worker.
  void leave(Incarnation incarnation, std::uint32_t session) noexcept;
  /// Leaves all incarnations.
  void forget(std::uint32_t session) noexcept;
  /// Kills the processes that were told to end and have not in time.
  void tidy() noexcept;

  int pid(Incarnation incarnation) const;
  bool dead(Incarnation incarnation) const;
  /// How many workers have ended: nothing has died while it stays the same.
  std::uint64_t exits() const noexcept {
    return exits_->load(std::memory_order_acquire);  // [exits]
  }
  /// Of one that has ended, or is about to.
  PoolDeath death(Incarnation incarnation);
  /// What it has said of its own failure, where that was read already.
  std::optional<process::ErrorReport> report(Incarnation incarnation) const;
  /// Kills a worker for what an environment of `session` does, and waits for its end; the first
  /// reason counts.
  void end(Incarnation incarnation, std::uint32_t session, KillReason reason);
  /// Tells a worker to end, and does not wait.
  void dismiss(Incarnation incarnation) noexcept;
  /// Where a worker that does not answer is: its stack, as text.
  std::string stack(Incarnation incarnation, std::chrono::milliseconds timeout);

  /// Sends a message with at most one descriptor, and wakes the worker; that it is gone shows
  /// later. False when the worker has not made room for it until `deadline`.
  bool send(Incarnation incarnation, const PoolMessage& message, int fd = -1,
            os::Deadline deadline = os::kNoDeadline);
  /// The next message of a session's from a worker; nothing when none comes until `deadline`.
  /// Messages to other sessions are kept for them.
  std::optional<PoolMessage> receive(std::uint32_t session, Incarnation incarnation,
                                     os::Deadline deadline);
  /// All messages of one kind that a worker has sent to a session; never waits.
  std::vector<PoolMessage> take_all(std::uint32_t session, Incarnation incarnation, PoolKind kind);
  /// A worker that does not answer is not waited for when the pool closes.
  void give_up(Incarnation incarnation) noexcept;

 private:
  struct Process {
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
    bool can_follow(Incarnation old) const { return !dead() && number > old.number; }
  };
  struct Slot {
    process::WorkerSpec spec;
    std::list<Process> incarnations;  // the newest last; the others have sessions, or are leaving
    std::uint64_t restarts = 0;
  };

  void start(std::span<Slot*> slots);
  void welcome(process::WorkerProcess& process, PoolDoor& door);
  void tell_to_end(Process& running) noexcept;
  void let_go(Slot& slot) noexcept;
  bool take_message(int worker, Process& running, os::Deadline deadline);
  Process* find(Incarnation incarnation) noexcept;
  const Process* find(Incarnation incarnation) const noexcept {
    return const_cast<WorkerPool*>(this)->find(incarnation);
  }
  Slot& slot(int worker) { return slots_[static_cast<std::size_t>(worker)]; }
  const Slot& slot(int worker) const { return slots_[static_cast<std::size_t>(worker)]; }

  const os::MakingProcess maker_;
  std::shared_ptr<process::Launcher> launcher_;
  PoolOptions options_;
  std::shared_ptr<std::atomic<std::uint64_t>> exits_;  // counted by the supervisor thread
  std::atomic<std::uint32_t> next_session_{1};
  std::atomic<bool> closed_{false};

  WorkerCpus cpus_;  // spread() is for the one session of a pool of rounds

  mutable std::mutex mutex_;  // of what follows
  std::vector<Slot> slots_;
  std::map<std::tuple<std::uint32_t, int, std::uint64_t>, std::deque<PoolMessage>>
      inbox_;  // by session, worker and incarnation
};

}  // namespace shoal::vector
