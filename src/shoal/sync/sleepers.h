// Waiters for something that a lock protects; they are woken one by one.
//
//   offset  bytes  field
//        0      4  calls: how often somebody was called, ever; the futex
//        4      4  asleep: how many may sleep that nobody has called yet
#pragma once

#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::sync {

/// Lives in shared memory beside a lock; all zero bytes is its first state: nobody sleeps.
///
/// A waiter that has not found what it wants calls enlist() under the lock, unlocks, and calls
/// sleep(). Who brings it calls call_one() or call_all() under the lock, unlocks, and hands what
/// that returned to wake(). So nobody falls asleep beside a change, and nobody makes a system call
/// without a sleeper.
///
/// Threads, processes: any.
/// Invariants, while the lock is free: `asleep` is at least the number of those that sleep and were
/// not called.
/// Memory ordering: the lock's.
/// Death: of a sleeper: `asleep` stays one too high, which costs one needless wake. Of one that was
/// called and has not taken what there is, or of a caller before its wake(): others sleep until
/// their deadline, so waits are slices.
/// Fork: parent and child use the same.
/// Limit: a sleeper that misses exactly 2^32 calls does not notice.
template <class Atomics>
class BasicSleepers {
 public:
  /// Under the lock: the caller is about to sleep. Returns what sleep() and leave() take.
  std::uint32_t enlist() noexcept {
    add(asleep_, 1);
    return calls_.load(std::memory_order_relaxed);
  }

  /// Without the lock: sleeps until somebody is called, or until `deadline`. kReady: look again.
  [[nodiscard]] WaitOutcome sleep(std::uint32_t ticket, os::Deadline deadline) noexcept {
    switch (Atomics::wait(calls_, ticket, deadline)) {
      case os::FutexOutcome::kTimedOut:
        return WaitOutcome::kTimedOut;
      case os::FutexOutcome::kInterrupted:
        return WaitOutcome::kInterrupted;
      default:
        return WaitOutcome::kReady;
    }
  }

  /// Under the lock, by who slept and returned for another reason than kReady. It looks once more
  /// before it goes: it may have been called all the same.
  void leave(std::uint32_t ticket) noexcept {
    // After a call it is not known whose place was taken off; one too many does no harm.
    if (calls_.load(std::memory_order_relaxed) == ticket)
      add(asleep_, static_cast<std::uint32_t>(-1));
  }

  enum class Wake : std::uint8_t { kNobody, kOne, kAll };

  /// Under the lock: there is something for one more. Returns what to hand to wake() after it.
  [[nodiscard]] Wake call_one() noexcept {
    if (asleep_.load(std::memory_order_relaxed) == 0) return Wake::kNobody;
    add(asleep_, static_cast<std::uint32_t>(-1));
    add(calls_, 1);
    return Wake::kOne;
  }

  /// Under the lock: there is something for all of them.
  [[nodiscard]] Wake call_all() noexcept {
    if (asleep_.load(std::memory_order_relaxed) == 0) return Wake::kNobody;
    asleep_.store(0, std::memory_order_relaxed);
    add(calls_, 1);
    return Wake::kAll;
  }

  /// Without the lock, after a call.
  void wake(Wake whom) noexcept {
    if (whom == Wake::kOne) Atomics::wake_one(calls_);
    if (whom == Wake::kAll) Atomics::wake_all(calls_);
  }

  /// Whether somebody may sleep that was not called. A hint without the lock.
  bool any() const noexcept { return asleep_.load(std::memory_order_relaxed) != 0; }

 private:
  // Relaxed, and no read-modify-write: the lock orders all changes; the kernel only compares.
  static void add(typename Atomics::Word& word, std::uint32_t n) noexcept {
    word.store(word.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  typename Atomics::Word calls_;
  typename Atomics::Word asleep_;
};

using Sleepers = BasicSleepers<SystemAtomics>;
static_assert(sizeof(Sleepers) == 8 && alignof(Sleepers) == 4);

}  // namespace shoal::sync
