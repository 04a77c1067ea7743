// An event: something has happened, or has not happened yet.
//
//   word, the futex: bits 31..2 how often it was set, bit 1 whether it is set,
//                    bit 0 set while somebody may sleep on it
#pragma once

#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::sync {

/// Lives in shared memory; all zero bytes is its first state, not set.
///
/// Threads, processes: any may do anything.
/// Invariants: set() ends every wait that began before it, also when clear() follows at once;
/// nobody owns anything.
/// Memory ordering: what was written before set() is visible after the wait() or is_set() that saw
/// it ([event]).
/// Death: a waiter may die on any line; one that dies inside set() leaves sleepers asleep until
/// their deadline, hence waits in slices.
/// Fork: parent and child use the same event.
/// Limit: a waiter that misses exactly 2^30 sets does not notice.
template <class Atomics>
class BasicEvent {
 public:
  bool is_set() const noexcept {
    return (word_.load(std::memory_order_acquire) & kSet) != 0;  // [event]
  }

  void set() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // the exchange synchronises
    std::uint32_t next;
    do {
      // Set already: exchanged all the same, for whoever relies on what this one wrote.
      next = (word & kSet) != 0 ? word : ((word & ~kAsleep) | kSet) + kOnce;
    } while (!word_.compare_exchange_weak(word, next, std::memory_order_release,
                                          std::memory_order_relaxed));  // [event]
    if ((word & kAsleep) != 0) Atomics::wake_all(word_);
  }

  void clear() noexcept {
    word_.fetch_and(~kSet, std::memory_order_relaxed);  // relaxed: publishes nothing
  }

  /// Where a wait begins: a set() after this ends it.
  std::uint32_t sets() const noexcept {
    return word_.load(std::memory_order_relaxed) >> 2;  // relaxed: compared with itself only
  }

  /// Waits until it is set or was since `sets` was looked at.
  template <class Policy>
  [[nodiscard]] WaitOutcome wait(std::uint32_t sets, Policy& policy,
                                 os::Deadline deadline) noexcept {
    return spin_then_park(
        policy, deadline, [&] { return happened(load(), sets); },
        [&] { return park(sets, deadline); });
  }

  /// The same without spinning.
  [[nodiscard]] WaitOutcome park(std::uint32_t sets, os::Deadline deadline) noexcept {
    for (;;) {
      std::uint32_t word = load();
      if (happened(word, sets)) return WaitOutcome::kReady;
      // Relaxed: setting the bit publishes nothing.
      if ((word & kAsleep) == 0 &&
          !word_.compare_exchange_strong(word, word | kAsleep, std::memory_order_relaxed,
                                         std::memory_order_relaxed)) {
        continue;
      }
      const os::FutexOutcome outcome = Atomics::wait(word_, word | kAsleep, deadline);
      if (happened(load(), sets)) return WaitOutcome::kReady;
      if (outcome == os::FutexOutcome::kTimedOut) return WaitOutcome::kTimedOut;
      if (outcome == os::FutexOutcome::kInterrupted) return WaitOutcome::kInterrupted;
    }
  }

 private:
  static constexpr std::uint32_t kAsleep = 1;
  static constexpr std::uint32_t kSet = 2;
  static constexpr std::uint32_t kOnce = 4;

  std::uint32_t load() const noexcept { return word_.load(std::memory_order_acquire); }  // [event]
  static bool happened(std::uint32_t word, std::uint32_t sets) noexcept {
    return (word & kSet) != 0 || word >> 2 != sets;
  }

  typename Atomics::Word word_;
};

using Event = BasicEvent<SystemAtomics>;
static_assert(sizeof(Event) == 4);

}  // namespace shoal::sync
