// The processes of A3C's actors: who starts, watches, replaces and ends them. What runs in them is
// the business of the entry that their WorkerSpecs name. It builds its environments, is sent its
// ActorOrder and the arena's descriptor, and is to run a LearningActor; its channel is closed when it
// is to end. One that gives no sign of life for too long is killed, and ends the run.
//
// Threads: one calls start(), watch() and close() at a time; pids() and replaced() any.
// Processes: the one that made it.
// Death: of an actor: watch() starts another in its place, at once, or after FaultPolicy::backoff;
// what it reported before its end (an environment that raised) is thrown instead, and so is
// vector::TooManyFaults after more deaths than the policy forgives. Of this process: the actors end
// with it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "shoal/env/space.h"
#include "shoal/os/clock.h"
#include "shoal/process/identity/shared_state.h"
#include "shoal/process/launcher.h"
#include "shoal/process/worker_died.h"
#include "shoal/vector/fault/fault_ledger.h"

namespace shoal::learn {

class ActorProcesses {
 public:
  static constexpr std::chrono::seconds kLongestLook{1};

  struct Setup {
    std::shared_ptr<process::Launcher> launcher;
    std::vector<process::WorkerSpec> actors;  // one each: entry, payload, first_env, num_envs
    env::Space observation_space;             // that all their environments have
    env::Space action_space;
    std::chrono::milliseconds start_timeout{60'000};  // for an actor to have its environments
  };

  /// What the learner adds.
  struct Orders {
    vector::FaultPolicy faults;
    int arena_fd = -1;
    /// The order of actor `actor`, of which `generation` have run before.
    std::function<std::vector<std::byte>(int actor, int generation)> order;
    /// How often an actor has said that it goes on; 0: it has not begun.
    std::function<std::uint64_t(int actor)> signs;
    std::function<void(int actor)> ended;       // its process; another may take its place
    std::chrono::milliseconds step_timeout{0};  // between two signs; 0: no bound
    std::function<void()> wake;                 // an actor has ended; any thread, until close()
    std::function<void()> end;                  // tells all actors to end
  };

  /// Starts the processes, which build their environments meanwhile. Throws InvalidArgument without a
  /// launcher or actors; StartFailed, TimedOut.
  explicit ActorProcesses(Setup setup);
  ~ActorProcesses();
  ActorProcesses(const ActorProcesses&) = delete;
  ActorProcesses& operator=(const ActorProcesses&) = delete;

  int size() const noexcept { return static_cast<int>(setup_.actors.size()); }
  int num_envs() const noexcept;
  int first_env(int actor) const {
    return setup_.actors[static_cast<std::size_t>(actor)].first_env;
  }
  const env::Space& observation_space() const noexcept { return setup_.observation_space; }
  const env::Space& action_space() const noexcept { return setup_.action_space; }

  /// Sends all their orders. Once; throws InvalidState the second time, and after close().
  void start(Orders orders);
  /// Deals with those that have ended, have not begun in time, or do not go on. Throws what Death above
  /// says, and TimedOut, which names the actor and tells where it was. To be called often: what passes
  /// between two calls, longer than kLongestLook, is not held against an actor.
  void watch();
  /// Ends all: those that do not end by themselves within `grace` are killed. Idempotent.
  void close(std::chrono::milliseconds grace = std::chrono::milliseconds(5000)) noexcept;

  /// Of those that run.
  std::vector<int> pids() const;
  /// Processes that took the place of one that had died.
  int replaced() const;

 private:
  /// Who is told when an actor has ended.
  struct Bell {
    std::mutex mutex;
    std::function<void()> ring;  // may be empty
  };
  struct Place {
    std::unique_ptr<process::WorkerProcess> process;
    os::Deadline begin_by = os::kNoDeadline;  // until it has begun
    std::uint64_t signs = 0;                  // that it had given
    os::Clock::duration silent{};             // that it has given none since
    int generation = 0;
  };

  void launch(const std::vector<int>& actors);
  void send_order(process::WorkerProcess& worker, int generation);
  void take_leave(int actor);
  void look_for_late(int actor);
  void look_for_silent(int actor, os::Clock::duration passed);
  [[noreturn]] void end_silent(int actor);

  const Setup setup_;
  Orders orders_;
  const std::shared_ptr<process::SharedState> shared_state_;
  const std::shared_ptr<Bell> bell_;
  vector::FaultLedger ledger_;
  os::Deadline looked_ = os::kNoDeadline;  // the last watch()
  mutable std::mutex mutex_;               // of what follows
  std::vector<Place> places_;
  int replaced_ = 0;
  bool started_ = false;
  bool closed_ = false;
};

}  // namespace shoal::learn
