// Some members that go from round to round together, and nobody else: the barrier of a fixed group
// whose deaths somebody else notices.
//
//   offset        bytes  field
//        0  128·members  one Doorbell each, whose generation counts the rounds that its member has
//                        arrived in
//
// An arrival is a ring of one's own door; a wait looks at each of the other doors in turn. So no
// word has two writers, and a round costs one system call a member at most, none while all spin.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::sync {

/// Borrows the doors, which lie in shared memory; all zero bytes is their first state: round 0.
///
/// Threads, processes: one member each, which alone calls arrive() and wait().
/// Invariants: nobody leaves wait() of a round before all have arrived in it; nobody is more than
/// one round ahead of anybody.
/// Memory ordering: what was written before any arrive() of a round is visible after wait() of it
/// (Doorbell). What a member reads after wait() of round r may be overwritten by others only after
/// its own arrival in round r + 1.
/// Death: of a member: the others' waits time out, for ever. Waits are slices, and the caller looks
/// for deaths in between.
/// Fork: the member is the parent.
template <class Atomics>
class BasicLockstep {
 public:
  using Door = BasicDoorbell<Atomics>;

  BasicLockstep(Door* doors, std::uint32_t members, std::uint32_t me) noexcept
      : doors_(doors), members_(members), me_(me) {}

  /// Begins the next round, whose turn to wait for has come.
  void arrive() noexcept {
    seen_ = doors_[me_].generation();
    doors_[me_].ring();
    next_ = 0;
  }

  /// Waits until all have arrived in the round of the last arrive(). Goes on where an earlier call
  /// of this round timed out.
  template <class Policy>
  [[nodiscard]] WaitOutcome wait(Policy& policy, os::Deadline deadline) noexcept {
    return wait_for_all([&](Door& door) { return door.wait(seen_, policy, deadline); });
  }

  /// The same without spinning.
  [[nodiscard]] WaitOutcome park(os::Deadline deadline) noexcept {
    return wait_for_all([&](Door& door) { return door.park(seen_, deadline); });
  }

  /// The first member that has not arrived, after a wait that timed out.
  std::uint32_t missing() const noexcept { return next_; }

 private:
  template <class Wait>
  WaitOutcome wait_for_all(Wait wait) noexcept {
    for (; next_ < members_; ++next_) {
      // Of one's own door nobody else changes the generation.
      if (next_ == me_ || doors_[next_].generation() != seen_) continue;
      const WaitOutcome outcome = wait(doors_[next_]);
      if (outcome != WaitOutcome::kReady) return outcome;
    }
    return WaitOutcome::kReady;
  }

  Door* doors_;
  std::uint32_t members_;
  std::uint32_t me_;
  std::uint32_t seen_ = 0;  // the generation of a door whose member has not arrived
  std::uint32_t next_ = 0;  // the member to look at next
};

using Lockstep = BasicLockstep<SystemAtomics>;

}  // namespace shoal::sync
