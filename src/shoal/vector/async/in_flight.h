// Which environments are in flight, since when, and where their results go.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/vector/async/async_segment.h"

namespace shoal::vector {

/// "environment 3", "environments 1, 2 and 7", "environments 0, 1, 2, 3, 4, 5, 6, 7 and 56 more".
std::string describe_envs(std::span<const std::int64_t> ids);

/// Throws AlreadyInFlight, which names them, where `busy` has any.
void refuse_busy(std::span<const std::int64_t> busy);

/// Throws InvalidArgument for an id outside [0, num_envs) and for one that is there twice.
/// `seen` has num_envs elements, all 0, and is so again afterwards.
void check_env_ids(const char* call, std::span<const std::int64_t> ids,
                   std::span<std::uint8_t> seen);

/// The caller's book of what it sent; a value.
///
/// Invariant: an environment has at most one order under way.
/// Threads: one at a time.
/// Processes, death: the caller's own, and ends with it.
class InFlight {
 public:
  explicit InFlight(int num_envs) : envs_(static_cast<std::size_t>(num_envs)) {}

  /// Why orders of an environment wait with the caller's side. One bit each.
  enum Hold : std::uint8_t {
    kAway = 1,     // its worker is not there
    kBackOff = 2,  // it failed before: the next one comes later
    kDrained = 4,  // its episode has ended, and its worker is to be replaced
  };

  struct Env {
    bool in_flight = false;
    bool was_reset = false;
    bool dropped = false;        // it will not come back
    bool owes_fault = false;     // it was lost: its next step ends as a fault
    bool needs_renewal = false;  // its next step is a reset: it is a new environment
    bool ended = false;          // its last result was the end of an episode: the next is not begun
    bool renewing = false;       // the order under way is the first of a new environment
    bool held = false;           // the order under way waits here, not at a worker
    bool outlived = false;       // it was obeyed by a worker that is dead: nothing more will come
    std::uint8_t hold = 0;       // Hold bits: why orders wait here
    std::uint32_t look = 0;      // the last one of sendable() that came here
    std::uint64_t sent_ns = 0;
    InboxEntry entry{};  // where its result goes

    /// Its next step is one: nothing else comes in its place, and it need not wait here.
    bool just_steps() const noexcept {
      return !(dropped || owes_fault || needs_renewal || hold != 0);
    }
  };

  Env& env(std::size_t i) noexcept { return envs_[i]; }
  const Env& env(std::size_t i) const noexcept { return envs_[i]; }
  /// All are to be reset before they are sent again.
  void forget_resets() noexcept {
    for (Env& env : envs_) env.was_reset = false;
  }
  int size() const noexcept { return static_cast<int>(envs_.size()); }
  int count() const noexcept { return count_; }
  int dropped() const noexcept { return dropped_; }
  void drop(std::size_t i) noexcept {
    if (!std::exchange(envs_[i].dropped, true)) ++dropped_;
  }

  /// Whether these may be sent: each is there, once, reset and not in flight.
  bool sendable(std::span<const std::int64_t> ids) noexcept;
  /// Throws AlreadyInFlight or NotReset, naming the environments.
  void require_sendable(std::span<const std::int64_t> ids) const;

  void begin(const InboxEntry& entry, std::uint64_t now_ns) noexcept {
    Env& env = envs_[entry.row];
    env.in_flight = true;
    env.outlived = false;
    env.sent_ns = now_ns;
    env.entry = entry;
    ++count_;
  }
  void end(std::size_t row) noexcept {
    envs_[row].in_flight = false;
    --count_;
  }

  /// Whether `count` neighbours from `first` on are in flight.
  bool all_out(std::size_t first, std::size_t count) const noexcept {
    bool all = true;
    for (std::size_t i = first; i < first + count; ++i) all = all && envs_[i].in_flight;
    return all;
  }

  /// The environments in flight.
  std::vector<std::int64_t> ids() const;
  /// "environments 3 (for 2.1 s) and 7 (for 0.4 s)".
  std::string describe_late(std::span<const std::int64_t> ids, std::uint64_t now_ns) const;

 private:
  std::vector<Env> envs_;
  std::uint32_t looks_ = 0;  // of sendable()
  int count_ = 0;
  int dropped_ = 0;
};

}  // namespace shoal::vector
