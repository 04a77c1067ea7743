// One rings, many wait: a generation that every ring advances.
//
//   offset  bytes  field
//        0      4  word, the futex: bits 31..1 the generation, bit 0 set while somebody may sleep
//        4    124  padding: the word has its cache lines to itself
//
// Generation and sleep bit share a word, so that no ring can fall between a waiter's last look and
// its sleep. The bit is no count: a sleeper killed with -9 could not take its share back from a
// count, and every later ring would pay for a system call. The bit goes with the generation; it
// costs at most one needless wake.
#pragma once

#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::sync {

/// Lives in shared memory; all zero bytes is its first state, generation 0.
///
/// Threads, processes: any may ring, any number may wait; each waiter remembers the generation it
/// saw last.
/// Invariants: a ring ends every wait for an older generation; it is one system call, and none when
/// nobody sleeps.
/// Memory ordering: what was written before ring() is visible after the wait() that it ended, and
/// after generation() returned its value (release/acquire on the word, [door]).
/// Death: a waiter may die on any line. A ringer that dies between its two steps leaves sleepers
/// asleep until their deadline, hence waits in slices.
/// Fork: parent and child use the same doorbell.
/// Limit: a waiter that misses exactly 2^31 rings does not notice.
template <class Atomics>
class BasicDoorbell {
 public:
  /// The generation now, to be handed to wait(). 31 bits, wraps to 0.
  std::uint32_t generation() const noexcept {
    return word_.load(std::memory_order_acquire) >> 1;  // [door]
  }

  /// Whether somebody may have gone to sleep since the last ring: the next will cost a system call.
  /// A hint, of this moment.
  bool may_have_sleeper() const noexcept {
    return (word_.load(std::memory_order_relaxed) & kAsleep) != 0;  // relaxed: decides no ordering
  }

  /// Ends all waits for an older generation than the new one, which is returned.
  std::uint32_t ring() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // the exchange below synchronises
    std::uint32_t next;
    do {
      next = (word & ~kAsleep) + 2;
    } while (!word_.compare_exchange_weak(word, next, std::memory_order_release,  // [door]
                                          std::memory_order_relaxed));
    if ((word & kAsleep) != 0) Atomics::wake_all(word_);
    return next >> 1;
  }

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
    const std::uint32_t awake = seen << 1;
    for (;;) {
      std::uint32_t word = awake;
      // Relaxed: setting the bit publishes nothing, and the generation is loaded with acquire
      // before returning.
      if (!word_.compare_exchange_strong(word, awake | kAsleep, std::memory_order_relaxed,
                                         std::memory_order_relaxed) &&
          word != (awake | kAsleep)) {
        return acquired();
      }
      const os::FutexOutcome outcome = Atomics::wait(word_, awake | kAsleep, deadline);
      if (generation() != seen) return WaitOutcome::kReady;
      if (outcome == os::FutexOutcome::kTimedOut) return WaitOutcome::kTimedOut;
      if (outcome == os::FutexOutcome::kInterrupted) return WaitOutcome::kInterrupted;
      // Woken all the same: by the wake of an older ring that came late.
    }
  }

 private:
  static constexpr std::uint32_t kAsleep = 1;

  WaitOutcome acquired() const noexcept {
    static_cast<void>(generation());
    return WaitOutcome::kReady;
  }

  alignas(128) typename Atomics::Word word_;
};

using Doorbell = BasicDoorbell<SystemAtomics>;
static_assert(sizeof(Doorbell) == 128 && alignof(Doorbell) == 128);

}  // namespace shoal::sync
