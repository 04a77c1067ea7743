// Who a worker is, as the code that runs in it sees it.
//
//   const process::Identity me = process::this_worker();
//   me.counter("episodes").add();
//   const process::PortLease port = me.lease_port();
//
// It works in every process: one that no launcher started is worker 0 of 1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "shoal/process/identity/port_lease.h"
#include "shoal/process/identity/shared_state.h"

namespace shoal::process {

/// A worker's number in its group, and its environments; a value.
struct Place {
  int index = 0;
  int num_workers = 1;
  int first_env = 0;  // its environments are [first_env, first_env + num_envs)
  int num_envs = 0;
  bool is_worker = false;  // in a process that was started for it
};

/// A value; copies are the same worker.
///
/// Threads: enter(), leave() and set_seed() are for the threads that run the environments; the rest
/// is for any.
/// Processes: the worker's own; the shared state is the whole group's.
/// Death: of a worker: the shared state stays whole (SharedState).
/// Fork: a child has the same shared state, and is the same worker.
class Identity {
 public:
  static constexpr int kNoEnv = -1;

  /// Where `shared_state` is null, one is made when it is first needed.
  explicit Identity(const Place& place = {}, std::shared_ptr<SharedState> shared_state = {});

  const Place& place() const noexcept;

  /// The environment whose code this thread runs now, by its number in the whole group, or kNoEnv.
  /// In a thread outside any IdentityScope of this worker: of the last enter() outside of one.
  int env_index() const noexcept;
  /// Environment `env` is being built, reset or stepped from here on. Costs one store.
  void enter(int env) const noexcept;
  void leave() const noexcept { enter(kNoEnv); }

  /// The last seed of environment `env` (or the first one, for a coming reset); none for another
  /// worker's.
  std::optional<std::uint64_t> seed(int env) const noexcept;
  void set_seed(int env, std::optional<std::uint64_t> seed) const noexcept;

  /// Shared by the group and its parent.
  std::shared_ptr<SharedState> shared_state() const;
  shm::Counter counter(std::string_view name) const { return shared_state()->counter(name); }

  /// As PortLease::take().
  PortLease lease_port(PortRange range = PortRange::standard(),
                       PortKind kind = PortKind::kTcp) const;

  /// The same for the same worker, and no other's of this process.
  std::uint64_t key() const noexcept;

  bool operator==(const Identity&) const noexcept = default;

 private:
  friend class IdentityScope;
  friend std::optional<Identity> started_worker();
  struct State;
  explicit Identity(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

/// The identity of the innermost IdentityScope of this thread, else what this process became, else
/// that of a plain process.
Identity this_worker();

/// As this_worker(), but nothing where it would be that of a plain process.
std::optional<Identity> started_worker();

/// From here on this process is that worker; for its entry. Nothing: a plain process again.
void become(std::optional<Identity> identity);

/// In this thread, and until the scope ends, the code is that of `identity`, which outlives it. A
/// resource.
/// Threads: it is destroyed in the thread that made it, the innermost first.
/// Processes, death: it lies in one process, and ends with it.
/// Fork: the child's one thread is in the scopes that the forking thread was in.
class IdentityScope {
 public:
  explicit IdentityScope(const Identity& identity) noexcept;
  ~IdentityScope();
  IdentityScope(const IdentityScope&) = delete;
  IdentityScope& operator=(const IdentityScope&) = delete;

 private:
  Identity::State* const outer_;
  const int outer_env_;
};

}  // namespace shoal::process
