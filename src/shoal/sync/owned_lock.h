// A lock whose word names its owner.
//
//   word: bits 31..1 the owner (0: free), bit 0 set while somebody may sleep on it; the futex
//
// It is what a user's lock is made of: any thread of any process may release it, it may be held for
// long, also after the thread that acquired it has ended, and it costs 4 bytes. A RobustLock
// belongs to a thread, which the kernel watches; it is for the few instructions in which shared
// words contradict each other.
#pragma once

#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/owner.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::sync {

/// Lives in shared memory; all zero bytes is its first state, free.
///
/// Threads, processes: any may acquire, any may release, whoever acquired.
/// Invariants: to acquire a free lock, or to release one that nobody waits for, is one exchange and
/// no system call.
/// Memory ordering: what was written before release() is visible after the acquisition that follows
/// ([lock]).
/// Death: of the owner: its number stays in the word. A waiter, which waits in slices and asks
/// between them whether owner() is alive, takes the lock over with recover(). Of a waiter: it
/// leaves a sleep bit. One that dies just after it was woken leaves the other sleepers asleep to
/// the end of their slices.
/// Fork: the owner is the parent.
template <class Atomics>
class BasicOwnedLock {
 public:
  [[nodiscard]] bool try_acquire(Owner me) noexcept {
    std::uint32_t free = 0;
    return word_.compare_exchange_strong(free, me << 1, std::memory_order_acquire,  // [lock]
                                         std::memory_order_relaxed);
  }

  /// Waits until `me` has it: spins as long as `policy` allows, then sleeps.
  template <class Policy>
  [[nodiscard]] WaitOutcome acquire(Owner me, Policy& policy, os::Deadline deadline) noexcept {
    return spin_then_park(
        policy, deadline, [&] { return owner() == kNobody && try_acquire(me); },
        [&] { return park(me, deadline); });
  }

  /// The same without spinning.
  [[nodiscard]] WaitOutcome park(Owner me, os::Deadline deadline) noexcept {
    // One that has slept took the wake-up meant for one of several, so it keeps the bit for them.
    std::uint32_t flag = 0;
    for (;;) {
      std::uint32_t word = word_.load(std::memory_order_relaxed);  // the exchange synchronises
      if (word == 0) {
        if (word_.compare_exchange_strong(word, me << 1 | flag, std::memory_order_acquire,
                                          std::memory_order_relaxed)) {  // [lock]
          return WaitOutcome::kReady;
        }
        continue;
      }
      // Relaxed: setting the bit publishes nothing.
      if ((word & kAsleep) == 0 &&
          !word_.compare_exchange_strong(word, word | kAsleep, std::memory_order_relaxed,
                                         std::memory_order_relaxed)) {
        continue;
      }
      const os::FutexOutcome outcome = Atomics::wait(word_, word | kAsleep, deadline);
      flag = kAsleep;
      if (outcome == os::FutexOutcome::kTimedOut) return WaitOutcome::kTimedOut;
      if (outcome == os::FutexOutcome::kInterrupted) return WaitOutcome::kInterrupted;
    }
  }

  /// Frees it. False, without effect, when it was free.
  [[nodiscard]] bool release() noexcept {
    const std::uint32_t word = word_.exchange(0, std::memory_order_release);  // [lock]
    if ((word & kAsleep) != 0) Atomics::wake_one(word_);
    return word != 0;
  }

  /// Takes it over from `dead`, a process that has ended. False when `dead` does not have it (any
  /// more).
  [[nodiscard]] bool recover(Owner dead, Owner me) noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // the exchange synchronises
    while (word >> 1 == dead) {
      if (word_.compare_exchange_strong(word, me << 1 | (word & kAsleep), std::memory_order_acquire,
                                        std::memory_order_relaxed)) {  // [lock]
        return true;
      }
    }
    return false;
  }

  /// Who has it at this moment; kNobody while it is free.
  Owner owner() const noexcept {
    return word_.load(std::memory_order_relaxed) >> 1;  // relaxed: decides no ordering
  }

 private:
  static constexpr std::uint32_t kAsleep = 1;

  typename Atomics::Word word_;
};

using OwnedLock = BasicOwnedLock<SystemAtomics>;
static_assert(sizeof(OwnedLock) == 4);

}  // namespace shoal::sync
