// Many arrive, one waits: a countdown whose last arrival wakes the waiter, if it sleeps.
//
//   offset  bytes  field
//        0      4  word, the futex: bits 31..17 the round, bit 16 set while the waiter may sleep,
//                  bits 15..0 how many have not arrived
//        4    124  padding: the word has its cache lines to itself
#pragma once

#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::sync {

/// Lives in shared memory; all zero bytes is its first state: round 0, nobody expected.
///
/// Threads, processes: one waiter, which starts the rounds; up to kMaxArrivals others arrive, once
/// a round each.
/// Invariants: an arrival for a round that is over or was given up changes nothing; only the last
/// arrival of a round may make a system call, and only when the waiter sleeps.
/// Memory ordering: what was written before any arrive() of the round is visible after the wait()
/// that they ended (release/acquire on the word, a release sequence through all arrivals, [left]).
/// What was written before start() reaches the workers by the ring that follows it, not by this
/// class.
/// Death: a worker that dies before its arrival leaves the round open, so the waiter waits in
/// slices, looks for deaths in between, and arrives in its stead or starts another round; one that
/// dies between its arrival and the wake leaves the waiter asleep until its deadline.
/// Fork: parent and child use the same object.
/// Limit: an arrival that is exactly 2^15 rounds late counts.
template <class Atomics>
class BasicGather {
 public:
  static constexpr std::uint32_t kMaxArrivals = 0xffff;

  /// Begins `round` (its low 15 bits count) with `arrivals` expected. What is left of the round
  /// before is given up.
  void start(std::uint32_t round, std::uint32_t arrivals) noexcept {
    // Relaxed: the workers learn of the round by the ring that follows.
    word_.store((round << kRoundShift) | arrivals, std::memory_order_relaxed);
  }

  /// Counts `arrivals` at once, of those that are still expected. Returns whether they were the
  /// last of `round`. False, without effect, when the round is over or given up.
  bool arrive(std::uint32_t round, std::uint32_t arrivals = 1) noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);  // the exchange below synchronises
    do {
      if (((word >> kRoundShift) ^ round) & kRoundMask || (word & kLeftMask) < arrivals)
        return false;
    } while (!word_.compare_exchange_weak(word, word - arrivals,
                                          std::memory_order_release,  // [left]
                                          std::memory_order_relaxed));
    if ((word & kLeftMask) != arrivals) return false;
    if ((word & kAsleep) != 0) Atomics::wake_all(word_);
    return true;
  }

  /// How many have not arrived yet.
  std::uint32_t left() const noexcept {
    return word_.load(std::memory_order_acquire) & kLeftMask;  // [left]
  }

  /// Waits until all have arrived: spins as long as `policy` allows, then sleeps.
  template <class Policy>
  [[nodiscard]] WaitOutcome wait(Policy& policy, os::Deadline deadline) noexcept {
    return spin_then_park(
        policy, deadline, [&] { return left() == 0; }, [&] { return park(deadline); });
  }

  /// The same without spinning: for a waiter whose CPU the workers need.
  [[nodiscard]] WaitOutcome park(os::Deadline deadline) noexcept {
    for (;;) {
      const std::uint32_t word = word_.fetch_or(kAsleep, std::memory_order_acquire);  // [left]
      if ((word & kLeftMask) == 0) return WaitOutcome::kReady;
      const os::FutexOutcome outcome = Atomics::wait(word_, word | kAsleep, deadline);
      if (left() == 0) return WaitOutcome::kReady;
      if (outcome == os::FutexOutcome::kTimedOut) return WaitOutcome::kTimedOut;
      if (outcome == os::FutexOutcome::kInterrupted) return WaitOutcome::kInterrupted;
      // Woken all the same: by the last arrival of an older round, whose wake came late.
    }
  }

 private:
  static constexpr std::uint32_t kLeftMask = 0xffff;
  static constexpr std::uint32_t kAsleep = 1u << 16;
  static constexpr std::uint32_t kRoundShift = 17;
  static constexpr std::uint32_t kRoundMask = 0x7fff;

  alignas(128) typename Atomics::Word word_;
};

using Gather = BasicGather<SystemAtomics>;
static_assert(sizeof(Gather) == 128 && alignof(Gather) == 128);

}  // namespace shoal::sync
