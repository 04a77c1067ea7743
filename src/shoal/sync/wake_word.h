// Waiting until something has changed: a generation that every change advances.
//
//   bits 31..1 the generation, bit 0 set while somebody may sleep on it; the futex
//
// It is a Doorbell in 4 bytes that can also wake a single sleeper. The change that woke it has
// cleared the sleep bit while others may still sleep, so a sleeper that was woken alone sets the
// bit again before it goes (others_may_sleep()).
#pragma once

#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::sync {

/// Lives in shared memory; all zero bytes is its first state, generation 0.
///
/// Threads, processes: any may do anything.
/// Invariants: a change is one system call, and none when nobody sleeps.
/// Memory ordering: what was written before a change is visible after generation() or sleep() saw
/// it ([wake]).
/// Death: one that dies between changing and waking, or woken alone before others_may_sleep(),
/// leaves sleepers asleep until their deadline: waits are slices.
/// Fork: parent and child use the same word.
/// Limit: as Doorbell, 2^31 changes unseen look like none.
template <class Atomics>
class BasicWakeWord {
 public:
  std::uint32_t generation() const noexcept {
    return word_.load(std::memory_order_acquire) >> 1;  // [wake]
  }

  void change_and_wake_one() noexcept {
    if (change()) Atomics::wake_one(word_);
  }
  void change_and_wake_all() noexcept {
    if (change()) Atomics::wake_all(word_);
  }

  /// For a waiter that has slept: has the next change wake somebody, whether or not anybody sleeps.
  void others_may_sleep() noexcept {
    word_.fetch_or(kAsleep, std::memory_order_relaxed);  // relaxed: publishes nothing
  }

  /// Sleeps until generation() is no longer `seen`.
  [[nodiscard]] WaitOutcome sleep(std::uint32_t seen, os::Deadline deadline) noexcept {
    const std::uint32_t awake = seen << 1;
    for (;;) {
      std::uint32_t word = awake;
      // Relaxed: setting the bit publishes nothing.
      if (!word_.compare_exchange_strong(word, awake | kAsleep, std::memory_order_relaxed,
                                         std::memory_order_relaxed) &&
          word != (awake | kAsleep)) {
        return WaitOutcome::kReady;
      }
      const os::FutexOutcome outcome = Atomics::wait(word_, awake | kAsleep, deadline);
      if (generation() != seen) return WaitOutcome::kReady;
      if (outcome == os::FutexOutcome::kTimedOut) return WaitOutcome::kTimedOut;
      if (outcome == os::FutexOutcome::kInterrupted) return WaitOutcome::kInterrupted;
    }
  }

 private:
  static constexpr std::uint32_t kAsleep = 1;

  /// Whether somebody may have slept.
  bool change() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // the exchange synchronises
    while (!word_.compare_exchange_weak(word, (word & ~kAsleep) + 2, std::memory_order_release,
                                        std::memory_order_relaxed)) {  // [wake]
    }
    return (word & kAsleep) != 0;
  }

  typename Atomics::Word word_;
};

using WakeWord = BasicWakeWord<SystemAtomics>;
static_assert(sizeof(WakeWord) == 4);

}  // namespace shoal::sync
