// Waiting until something has changed: a generation that every change advances.
//
//   bits 31..1 the generation, bit 0 set while somebody may sleep on it; the futex
//
// Generation and sleep bit share a word, so that no change can fall between a waiter's last look and
// its sleep. The bit is no count: a sleeper killed with -9 could not take its share back from a
// count, and every later change would pay for a system call. The bit goes with the generation; it
// costs at most one needless wake.
//
// A change that wakes one sleeper has cleared the bit while others may still sleep, so that sleeper
// sets the bit again before it goes (others_may_sleep()).
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
/// Limit: 2^31 changes unseen look like none.
template <class Atomics>
class BasicWakeWord {
 public:
  /// The generation now, to be handed to sleep(). 31 bits, wraps to 0.
  std::uint32_t generation() const noexcept {
    return word_.load(std::memory_order_acquire) >> 1;  // [wake]
  }

  /// Whether somebody may have gone to sleep since the last change: the next will cost a system
  /// call. A hint, of this moment.
  bool may_have_sleeper() const noexcept {
    return (word_.load(std::memory_order_relaxed) & kAsleep) != 0;  // relaxed: decides no ordering
  }

  void change_and_wake_one() noexcept {
    if (may_have_slept(change())) Atomics::wake_one(word_);
  }
  /// Returns the new generation.
  std::uint32_t change_and_wake_all() noexcept {
    const std::uint32_t before = change();
    if (may_have_slept(before)) Atomics::wake_all(word_);
    return changed(before) >> 1;
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
      // Relaxed: setting the bit publishes nothing, and the generation is loaded with acquire
      // before returning.
      if (!word_.compare_exchange_strong(word, awake | kAsleep, std::memory_order_relaxed,
                                         std::memory_order_relaxed) &&
          word != (awake | kAsleep)) {
        static_cast<void>(generation());
        return WaitOutcome::kReady;
      }
      const os::FutexOutcome outcome = Atomics::wait(word_, awake | kAsleep, deadline);
      if (generation() != seen) return WaitOutcome::kReady;
      if (outcome == os::FutexOutcome::kTimedOut) return WaitOutcome::kTimedOut;
      if (outcome == os::FutexOutcome::kInterrupted) return WaitOutcome::kInterrupted;
      // Woken all the same: by the wake of an older change that came late.
    }
  }

 private:
  static constexpr std::uint32_t kAsleep = 1;

  static bool may_have_slept(std::uint32_t before) noexcept { return (before & kAsleep) != 0; }
  static std::uint32_t changed(std::uint32_t before) noexcept { return (before & ~kAsleep) + 2; }

  /// Returns the word as it was.
  std::uint32_t change() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // the exchange synchronises
    while (!word_.compare_exchange_weak(word, changed(word), std::memory_order_release,
                                        std::memory_order_relaxed)) {  // [wake]
    }
    return word;
  }

  typename Atomics::Word word_;
};

using WakeWord = BasicWakeWord<SystemAtomics>;
static_assert(sizeof(WakeWord) == 4);

}  // namespace shoal::sync
