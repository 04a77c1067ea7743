// One rings, many wait: a generation that every ring advances.
//
//   offset  bytes  field
//        0      4  the WakeWord
//        4    124  padding: the word has its cache lines to itself
#pragma once

#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/sync/wait_outcome.h"
#include "shoal/sync/wake_word.h"

namespace shoal::sync {

/// Lives in shared memory; all zero bytes is its first state, generation 0.
///
/// Threads, processes: any may ring, any number may wait; each waiter remembers the generation it
/// saw last.
/// Invariants: a ring ends every wait for an older generation; it is one system call, and none when
/// nobody sleeps.
/// Memory ordering: what was written before ring() is visible after the wait() that it ended, and
/// after generation() returned its value (WakeWord).
/// Death: a waiter may die on any line. A ringer that dies between its two steps leaves sleepers
/// asleep until their deadline, hence waits in slices.
/// Fork: parent and child use the same doorbell.
/// Limit: a waiter that misses exactly 2^31 rings does not notice.
template <class Atomics>
class BasicDoorbell {
 public:
  /// The generation now, to be handed to wait(). 31 bits, wraps to 0.
  std::uint32_t generation() const noexcept { return word_.generation(); }

  /// Whether the next ring will cost a system call. A hint, of this moment.
  bool may_have_sleeper() const noexcept { return word_.may_have_sleeper(); }

  /// Ends all waits for an older generation than the new one, which is returned.
  std::uint32_t ring() noexcept { return word_.change_and_wake_all(); }

  /// Waits until generation() is no longer `seen`: spins as long as `policy` allows, then sleeps.
  template <class Policy>
  [[nodiscard]] WaitOutcome wait(std::uint32_t seen, Policy& policy,
                                 os::Deadline deadline) noexcept {
    return spin_then_park(
        policy, deadline, [&] { return generation() != seen; },
        [&] { return park(seen, deadline); });
  }

  /// The same without spinning: for a waiter whose CPU somebody else needs at once.
  [[nodiscard]] WaitOutcome park(std::uint32_t seen, os::Deadline deadline) noexcept {
    return word_.sleep(seen, deadline);
  }

 private:
  alignas(128) BasicWakeWord<Atomics> word_;
};

using Doorbell = BasicDoorbell<SystemAtomics>;
static_assert(sizeof(Doorbell) == 128 && alignof(Doorbell) == 128);

}  // namespace shoal::sync
