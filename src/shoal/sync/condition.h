// A condition: waiters are notified one by one.
//
//   offset  bytes  field
//        0     64  latch: the robust lock under which the words below change
//       64      8  next: the ticket of the next waiter
//       72      4  slots: how many waiters can have one
//       76      4  crowd: who found no free slot sleeps here, until the next notification of anybody
//       80     48  padding
//      128  16·slots  waiters: state (4 bytes; the futex of this one), owner (4), ticket (8)
//
// A waiter has a slot, and is notified there by one store. So no notification is lost on a waiter
// that gave up or died. The notifier passes such waiters over. Where one died after it was
// notified, the others find its slot, and hand its notification on.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/latch.h"
#include "shoal/sync/owner.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/sync/wait_outcome.h"
#include "shoal/sync/wake_word.h"

namespace shoal::sync {

/// Lives in shared memory, in bytes(slots) of it that are zero at first; init() makes it. The lock
/// of a condition variable is its user's, who calls enter() under it, releases it, calls wait() and
/// leave(), and acquires it again.
///
/// Threads, processes: any may do anything after init().
/// Invariants: notify(n) ends at most n waits, those that entered first; a waiter without a slot
/// wakes at every notification.
/// Memory ordering: that of the user's lock.
/// Death: on any line; waiters call hand_on() between their slices.
/// Fork: the waiter is the parent.
template <class Atomics, class Lock = RobustLock>
class BasicCondition {
 public:
  /// Where a waiter is notified; a value.
  struct WaiterSlot {
    std::uint32_t slot;   // kCrowd: none
    std::uint32_t crowd;  // what the crowd's generation was
  };

  static constexpr std::uint32_t kMaxSlots = 256;

  static constexpr std::size_t bytes(std::uint32_t slots) noexcept {
    return sizeof(BasicCondition) + slots * sizeof(Waiter);
  }

  /// Once, before anybody else can see it.
  void init(std::uint32_t slots) {
    latch_.init();
    slots_ = slots;
  }

  /// Begins a wait. `lives(Owner) -> bool` is asked when all slots are taken.
  template <class Lives>
  [[nodiscard]] WaiterSlot enter(Owner me, Lives lives) noexcept {
    Woken woken(*this);
    const auto latched = latch();
    std::uint32_t slot = free_slot();
    if (slot == kCrowd) {
      hand_on_latched(lives, woken);
      for (std::uint32_t i = 0; i < slots_; ++i) {
        if (is(i, kWaiting) && !lives(owner(i))) set(i, kFree);
      }
      slot = free_slot();
    }
    if (slot == kCrowd) return {kCrowd, crowd_.generation()};
    // Relaxed, as all but the state: they change and are read under the latch.
    const std::uint64_t ticket = next_.load(std::memory_order_relaxed);
    next_.store(ticket + 1, std::memory_order_relaxed);
    waiters()[slot].ticket.store(ticket, std::memory_order_relaxed);
    waiters()[slot].owner.store(me, std::memory_order_relaxed);
    set(slot, kWaiting);
    return {slot, 0};
  }

  /// Waits until notified: spins as long as `policy` allows, then sleeps.
  template <class Policy>
  [[nodiscard]] WaitOutcome wait(WaiterSlot at, Policy& policy, os::Deadline deadline) noexcept {
    return spin_then_park(
        policy, deadline, [&] { return notified(at); }, [&] { return park(at, deadline); });
  }

  /// The same without spinning.
  [[nodiscard]] WaitOutcome park(WaiterSlot at, os::Deadline deadline) noexcept {
    if (at.slot == kCrowd) return crowd_.sleep(at.crowd, deadline);
    const Word& state = waiters()[at.slot].state;
    for (;;) {
      if (notified(at)) return WaitOutcome::kReady;
      const os::FutexOutcome outcome = Atomics::wait(state, kWaiting, deadline);
      if (notified(at)) return WaitOutcome::kReady;
      if (outcome == os::FutexOutcome::kTimedOut) return WaitOutcome::kTimedOut;
      if (outcome == os::FutexOutcome::kInterrupted) return WaitOutcome::kInterrupted;
    }
  }

  /// Ends a wait; returns whether it was notified.
  [[nodiscard]] bool leave(WaiterSlot at) noexcept {
    if (at.slot == kCrowd) return notified(at);
    const auto latched = latch();
    const bool was = is(at.slot, kNotified);
    set(at.slot, kFree);
    return was;
  }

  /// Notifies up to `count` living waiters, first come, first served; returns how many.
  template <class Lives>
  std::uint32_t notify(std::uint32_t count, Lives lives) noexcept {
    Woken woken(*this);
    const auto latched = latch();
    crowd_.change_and_wake_all();
    return notify_latched(count, lives, woken);
  }

  /// Hands on the notifications of waiters that died before they left.
  template <class Lives>
  void hand_on(Lives lives) noexcept {
    Woken woken(*this);
    const auto latched = latch();
    hand_on_latched(lives, woken);
  }

  /// How many wait that are not notified yet.
  std::uint32_t waiting() noexcept {
    const auto latched = latch();
    return waiting_latched();
  }

 private:
  using Word = typename Atomics::Word;
  using Word64 = typename Atomics::Word64;
  static constexpr std::uint32_t kCrowd = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint32_t kFree = 0, kWaiting = 1, kNotified = 2;

  struct Waiter {
    Word state;
    Word owner;
    Word64 ticket;
  };

  /// Wakes the waiters that it was told of in its destructor, after the latch is released.
  class Woken {
   public:
    explicit Woken(BasicCondition& condition) noexcept : condition_(condition) {}
    ~Woken() {
      for (std::uint32_t i = 0; slots_.any() && i < condition_.slots_; ++i) {
        if (slots_.test(i)) Atomics::wake_all(condition_.waiters()[i].state);
      }
    }
    Woken(const Woken&) = delete;
    Woken& operator=(const Woken&) = delete;
    void add(std::uint32_t slot) noexcept { slots_.set(slot); }

   private:
    BasicCondition& condition_;
    std::bitset<kMaxSlots> slots_;
  };

  LatchGuard<Lock> latch() noexcept {
    return LatchGuard<Lock>(latch_, [] {});  // every change is one store: nothing to put in order
  }

  bool notified(WaiterSlot at) const noexcept {
    return at.slot == kCrowd ? crowd_.generation() != at.crowd : is(at.slot, kNotified);
  }

  template <class Lives>
  std::uint32_t notify_latched(std::uint32_t count, Lives lives, Woken& woken) noexcept {
    std::uint32_t done = 0;
    for (std::uint32_t left = waiting_latched(); left > 0 && done < count; --left) {
      const std::uint32_t slot = oldest();
      // Where all that wait are notified, the dead may be as well.
      if (left > count - done && !lives(owner(slot))) {
        set(slot, kFree);
        continue;
      }
      set(slot, kNotified);
      woken.add(slot);
      ++done;
    }
    return done;
  }

  template <class Lives>
  void hand_on_latched(Lives lives, Woken& woken) noexcept {
    for (std::uint32_t i = 0; i < slots_; ++i) {
      if (!is(i, kNotified) || lives(owner(i))) continue;
      // In this order: a death in between notifies one too many, not one too few.
      notify_latched(1, lives, woken);
      set(i, kFree);
    }
  }

  std::uint32_t waiting_latched() const noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < slots_; ++i) count += is(i, kWaiting);
    return count;
  }

  std::uint32_t free_slot() const noexcept {
    for (std::uint32_t i = 0; i < slots_; ++i) {
      if (is(i, kFree)) return i;
    }
    return kCrowd;
  }

  /// Of those that wait; there is one.
  std::uint32_t oldest() const noexcept {
    std::uint32_t found = 0;
    std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
    for (std::uint32_t i = 0; i < slots_; ++i) {
      if (!is(i, kWaiting)) continue;
      const std::uint64_t ticket = waiters()[i].ticket.load(std::memory_order_relaxed);
      if (ticket < first) {
        first = ticket;
        found = i;
      }
    }
    return found;
  }

  bool is(std::uint32_t slot, std::uint32_t state) const noexcept {
    return waiters()[slot].state.load(std::memory_order_acquire) == state;  // [notified]
  }
  void set(std::uint32_t slot, std::uint32_t state) noexcept {
    waiters()[slot].state.store(state, std::memory_order_release);  // [notified]
  }
  Owner owner(std::uint32_t slot) const noexcept {
    return waiters()[slot].owner.load(std::memory_order_relaxed);
  }

  Waiter* waiters() noexcept { return reinterpret_cast<Waiter*>(this + 1); }
  const Waiter* waiters() const noexcept { return reinterpret_cast<const Waiter*>(this + 1); }

  Lock latch_;
  Word64 next_;
  std::uint32_t slots_;
  BasicWakeWord<Atomics> crowd_;
};

using Condition = BasicCondition<SystemAtomics>;
static_assert(sizeof(Condition) == 128);

}  // namespace shoal::sync
