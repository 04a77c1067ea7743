// A barrier: many arrive, and go on together.
//
//   offset  bytes  field
//        0     64  latch: the robust lock under which the words below change
//       64      8  core: bits 63..32 whether it is broken, bits 31..0 the round
//       72      8  broken rounds: bit r % 64 set where round r broke, of the last 64
//       80      4  wake: who waits for the others sleeps here
//       84      4  parties
//       88      4  slots
//       92      4  culprit: whose death broke it; 0 when no death did
//       96     32  padding
//      128  16·slots  members: owner (8 bytes), and its arrivals: bits 63..32 round, 31..0 how many
//
// A process that has arrived once is a member until it calls leave(). A member's death breaks the
// barrier, whether or not the member had arrived: the others would wait for it for ever. The count
// of a round is the sum of its members' arrivals, so an arrival is one store, and so is the step to
// the next round.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/sync/atomics.h"
#include "shoal/sync/latch.h"
#include "shoal/sync/owner.h"
#include "shoal/sync/spin_wait.h"
#include "shoal/sync/wait_outcome.h"
#include "shoal/sync/wake_word.h"

namespace shoal::sync {

enum class ArrivalKind : std::uint8_t {
  kFirst,   // others are to come: wait(round)
  kLast,    // all have come: complete(round) lets them go on
  kFull,    // the round before is about to end: wait(round), then arrive again
  kBroken,  // nobody can arrive until reset()
};

struct Arrival {
  ArrivalKind kind;
  std::uint32_t round;
  std::uint32_t index;  // 0 … parties - 1, in the order of arrival
};

enum class RoundState : std::uint8_t { kOpen, kComplete, kBroken };

/// Lives in shared memory, in bytes(slots) of it that are zero at first; init() makes it.
///
/// Threads, processes: any may do anything after init(), several threads of a process may arrive.
/// Invariants: complete() lets exactly `parties` arrivals go on, or none; a broken round stays so
/// to all that arrived in it.
/// Memory ordering: what was written before an arrival is visible to all that go on (the latch, and
/// [wake]).
/// Death: on any line; waiters call check_members() between their slices.
/// Fork: the member is the parent.
/// Limit: a waiter that sleeps through 64 rounds takes a broken round for a complete one.
template <class Atomics, class Lock = RobustLock>
class BasicBarrier {
 public:
  static constexpr std::size_t bytes(std::uint32_t slots) noexcept {
    return sizeof(BasicBarrier) + slots * sizeof(Member);
  }

  /// Once, before anybody else can see it. At least as many slots as parties.
  void init(std::uint32_t parties, std::uint32_t slots) {
    latch_.init();
    parties_ = parties;
    slots_ = slots;
  }

  [[nodiscard]] Arrival arrive(Owner me) noexcept {
    const auto latched = latch();
    const std::uint32_t round = this->round();
    if (broken()) return {ArrivalKind::kBroken, round, 0};
    const std::uint32_t before = arrived_latched();
    if (before == parties_) return {ArrivalKind::kFull, round, 0};
    Member& member = place_of(me);
    if (owner(member) != me) {
      // In this order: a death in between leaves a member that has not arrived.
      member.arrivals.store(0, std::memory_order_relaxed);
      member.owner.store(me, std::memory_order_relaxed);
    }
    const std::uint32_t mine = arrivals(member) + 1;
    member.arrivals.store(std::uint64_t{round} << 32 | mine, std::memory_order_relaxed);
    return {before + 1 == parties_ ? ArrivalKind::kLast : ArrivalKind::kFirst, round, before};
  }

  /// After kLast: ends the round. False when it broke meanwhile.
  [[nodiscard]] bool complete(std::uint32_t round) noexcept {
    {
      const auto latched = latch();
      if (this->round() != round || broken()) return false;
      next_round(false);
    }
    wake_.change_and_wake_all();
    return true;
  }

  /// Waits until `round` is over: spins as long as `policy` allows, then sleeps.
  template <class Policy>
  [[nodiscard]] WaitOutcome wait(std::uint32_t round, Policy& policy,
                                 os::Deadline deadline) noexcept {
    return spin_then_park(
        policy, deadline, [&] { return state(round) != RoundState::kOpen; },
        [&] { return park(round, deadline); });
  }

  /// The same without spinning.
  [[nodiscard]] WaitOutcome park(std::uint32_t round, os::Deadline deadline) noexcept {
    for (;;) {
      const std::uint32_t seen = wake_.generation();
      if (state(round) != RoundState::kOpen) return WaitOutcome::kReady;
      const WaitOutcome outcome = wake_.sleep(seen, deadline);
      if (outcome != WaitOutcome::kReady) return outcome;
    }
  }

  /// How `round` went, for one that arrived in it.
  RoundState state(std::uint32_t round) const noexcept {
    const std::uint64_t core = core_.load(std::memory_order_acquire);  // [round]
    if (static_cast<std::uint32_t>(core) == round) {
      return core >> 32 != 0 ? RoundState::kBroken : RoundState::kOpen;
    }
    // Relaxed: written before the core that was just read.
    const std::uint64_t history = broken_rounds_.load(std::memory_order_relaxed);
    return (history & bit(round)) != 0 ? RoundState::kBroken : RoundState::kComplete;
  }

  /// Breaks it: those that wait, and those that come, cannot go on until reset().
  void abort() noexcept { break_it(kNobody, nullptr); }
  /// The same, unless `round` is over: for a waiter that gives up.
  void abandon(std::uint32_t round) noexcept { break_it(kNobody, &round); }

  /// Makes it empty and whole again; waiters are told that their round broke.
  void reset() noexcept {
    {
      const auto latched = latch();
      next_round(true);
      culprit_.store(kNobody, std::memory_order_relaxed);
      // In this order: without its members the round before could be complete no more.
      for (std::uint32_t i = 0; i < slots_; ++i) {
        members()[i].owner.store(kNobody, std::memory_order_relaxed);
      }
    }
    wake_.change_and_wake_all();
  }

  /// Breaks it when a member is dead: `lives(Owner) -> bool`.
  template <class Lives>
  void check_members(Lives lives) noexcept {
    {
      const auto latched = latch();
      Owner dead = kNobody;
      for (std::uint32_t i = 0; i < slots_; ++i) {
        const Owner owner = this->owner(members()[i]);
        if (owner != kNobody && !lives(owner)) dead = owner;
      }
      if (dead == kNobody || broken()) return;
      break_latched(dead);
    }
    wake_.change_and_wake_all();
  }

  /// `me` will not come again, and nobody is to wait for it. Its arrivals that still wait count.
  void leave(Owner me) noexcept {
    const auto latched = latch();
    for (std::uint32_t i = 0; i < slots_; ++i) {
      Member& member = members()[i];
      if (owner(member) == me && arrivals(member) == 0) {
        member.owner.store(kNobody, std::memory_order_relaxed);
      }
    }
  }

  bool broken() const noexcept {
    return core_.load(std::memory_order_acquire) >> 32 != 0;  // [round]
  }
  /// Whose death broke it; kNobody when no death did.
  Owner culprit() const noexcept { return culprit_.load(std::memory_order_relaxed); }
  std::uint32_t parties() const noexcept { return parties_; }
  /// How many have arrived in the round that is open; 0 while it is broken.
  std::uint32_t arrived() noexcept {
    const auto latched = latch();
    return broken() ? 0 : arrived_latched();
  }

 private:
  using Word = typename Atomics::Word;
  using Word64 = typename Atomics::Word64;

  struct Member {
    Word64 owner;
    Word64 arrivals;
  };

  LatchGuard<Lock> latch() noexcept {
    return LatchGuard<Lock>(latch_, [] {});  // every change is one store: nothing to put in order
  }

  void break_it(Owner culprit, const std::uint32_t* only) noexcept {
    {
      const auto latched = latch();
      if (broken() || (only != nullptr && *only != round())) return;
      break_latched(culprit);
    }
    wake_.change_and_wake_all();
  }

  void break_latched(Owner culprit) noexcept {
    culprit_.store(culprit, std::memory_order_relaxed);
    core_.store(std::uint64_t{1} << 32 | round(), std::memory_order_release);  // [round]
  }

  void next_round(bool broke) noexcept {
    const std::uint32_t round = this->round();
    const std::uint64_t history = broken_rounds_.load(std::memory_order_relaxed) & ~bit(round);
    broken_rounds_.store(broke ? history | bit(round) : history, std::memory_order_relaxed);
    core_.store(static_cast<std::uint32_t>(round + 1), std::memory_order_release);  // [round]
  }

  std::uint32_t round() const noexcept {
    return static_cast<std::uint32_t>(core_.load(std::memory_order_relaxed));
  }
  static std::uint64_t bit(std::uint32_t round) noexcept { return std::uint64_t{1} << round % 64; }

  // Relaxed: members change and are read under the latch.
  static Owner owner(const Member& member) noexcept {
    return static_cast<Owner>(member.owner.load(std::memory_order_relaxed));
  }
  std::uint32_t arrivals(const Member& member) const noexcept {
    const std::uint64_t word = member.arrivals.load(std::memory_order_relaxed);
    return word >> 32 == round() ? static_cast<std::uint32_t>(word) : 0;
  }
  std::uint32_t arrived_latched() const noexcept {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < slots_; ++i) {
      if (owner(members()[i]) != kNobody) sum += arrivals(members()[i]);
    }
    return sum;
  }

  /// The place of `me`, a free one, or that of a member that has not come in this round.
  Member& place_of(Owner me) noexcept {
    Member* free = nullptr;
    Member* absent = nullptr;
    for (std::uint32_t i = 0; i < slots_; ++i) {
      Member& member = members()[i];
      if (owner(member) == me) return member;
      if (owner(member) == kNobody) {
        if (free == nullptr) free = &member;
      } else if (arrivals(member) == 0) {
        absent = &member;
      }
    }
    return free != nullptr ? *free : *absent;  // fewer have arrived than there are places
  }

  Member* members() noexcept { return reinterpret_cast<Member*>(this + 1); }
  const Member* members() const noexcept { return reinterpret_cast<const Member*>(this + 1); }

  Lock latch_;
  Word64 core_;
  Word64 broken_rounds_;
  BasicWakeWord<Atomics> wake_;
  std::uint32_t parties_;
  std::uint32_t slots_;
  Word culprit_;
};

using Barrier = BasicBarrier<SystemAtomics>;
static_assert(sizeof(Barrier) == 128);

}  // namespace shoal::sync
