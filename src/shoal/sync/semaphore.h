// A semaphore that knows who holds its permits.
//
//   offset  bytes  field
//        0     64  latch: the robust lock under which the words below change
//       64      4  wake: who waits for a permit sleeps here
//       68      4  value: how many may be taken now; what core and holders say, for a quick look
//       72      8  core: bits 63..32 whether permits travel, bits 31..0 the pool
//       80      4  maximum
//       84      4  slots: how many holders follow
//       88     40  padding
//      128  8·slots  holders: bits 63..32 the owner, bits 31..0 how many permits it holds
//
// The pool is what there is in all: held permits are in it, too, and value = pool - held. So an
// acquisition and its release are one store each, to a holder's word, and a death between any two
// instructions leaves either the permit or the record, never one without the other.
//
// Permits may also *travel*: one process releases what another one, or nobody, has acquired, where
// a semaphore signals something or counts the free places of a queue. The first such release shows
// it. From then on nobody owns anything: the pool is the value, and a death gives nothing back.
#pragma once

#include <algorithm>
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

/// Lives in shared memory, in bytes(slots) of it that are zero at first; init() makes it.
///
/// Threads, processes: any may do anything after init().
/// Invariants: value() permits can be acquired, no more. What a holder acquired comes back once, by
/// its releases or by recover().
/// Memory ordering: what was written before release() is visible after the acquisition that takes
/// its permit (the latch, and [wake]).
/// Death: on any line, see above; whoever waits asks recover() between its slices.
/// Fork: the holder is the parent.
/// Limit: with all slots taken by living holders, permits begin to travel.
template <class Atomics, class Lock = RobustLock>
class BasicSemaphore {
 public:
  static constexpr std::uint32_t kMaxValue = 0x7fff'ffff;

  static constexpr std::size_t bytes(std::uint32_t slots) noexcept {
    return sizeof(BasicSemaphore) + slots * sizeof(typename Atomics::Word64);
  }

  /// Once, before anybody else can see it. Without slots its permits travel.
  void init(std::uint32_t value, std::uint32_t maximum, std::uint32_t slots) {
    latch_.init();
    maximum_ = maximum;
    slots_ = slots;
    set_core(slots == 0, value);
    set_value(value);
  }

  [[nodiscard]] bool try_acquire(Owner me) noexcept { return take(me, false); }

  /// Waits until `me` has a permit: spins as long as `policy` allows, then sleeps.
  template <class Policy>
  [[nodiscard]] WaitOutcome acquire(Owner me, Policy& policy, os::Deadline deadline) noexcept {
    return spin_then_park(
        policy, deadline, [&] { return value() != 0 && take(me, false); },
        [&] { return park(me, deadline); });
  }

  /// The same without spinning.
  [[nodiscard]] WaitOutcome park(Owner me, os::Deadline deadline) noexcept {
    for (bool slept = false;; slept = true) {
      const std::uint32_t seen = wake_.generation();
      if (take(me, slept)) return WaitOutcome::kReady;
      const WaitOutcome outcome = wake_.sleep(seen, deadline);
      if (outcome != WaitOutcome::kReady) return outcome;
    }
  }

  /// Gives a permit back. False, without effect, when the maximum is there already.
  [[nodiscard]] bool release(Owner me) noexcept {
    {
      const auto latched = latch();
      const std::uint32_t now = value();
      if (now >= maximum_) return false;
      if (travels()) {
        set_core(true, now + 1);
      } else if (Word64* mine = holder(me)) {
        put(*mine, me, count(*mine) - 1);
      } else {
        set_core(true, now + 1);
      }
      set_value(now + 1);
    }
    wake_.change_and_wake_one();
    return true;
  }

  /// Gives back the permits of holders that are dead, for which `lives(Owner)` returns false;
  /// returns how many permits.
  template <class Lives>
  std::uint32_t recover(Lives lives, Owner* dead = nullptr) noexcept {
    std::uint32_t back = 0;
    {
      const auto latched = latch();
      if (travels()) return 0;
      for (std::uint32_t slot = 0; slot < slots_; ++slot) {
        Word64& word = holders()[slot];
        if (count(word) == 0 || lives(owner(word))) continue;
        if (dead != nullptr) *dead = owner(word);
        back += count(word);
        put(word, kNobody, 0);
      }
      set_value(value() + back);
    }
    for (std::uint32_t i = 0; i < back; ++i) wake_.change_and_wake_one();
    return back;
  }

  /// How many can be acquired at this moment.
  std::uint32_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);  // relaxed: who relies on it holds the latch
  }
  std::uint32_t maximum() const noexcept { return maximum_; }
  /// Whether permits are released by others than acquired them: a death gives nothing back.
  bool travels() const noexcept { return load(core_) >> 32 != 0; }

  /// How many `me` holds, as far as permits do not travel.
  std::uint32_t held(Owner me) noexcept {
    const auto latched = latch();
    const Word64* mine = travels() ? nullptr : holder(me);
    return mine == nullptr ? 0 : count(*mine);
  }

 private:
  using Word64 = typename Atomics::Word64;

  LatchGuard<Lock> latch() noexcept {
    return LatchGuard<Lock>(latch_, [this] { recount(); });
  }

  [[nodiscard]] bool take(Owner me, bool slept) noexcept {
    bool more = false;
    {
      const auto latched = latch();
      const std::uint32_t now = value();
      if (now == 0) return false;
      Word64* mine = travels() ? nullptr : place_of(me);
      if (mine != nullptr) {
        put(*mine, me, count(*mine) + 1);
      } else {
        set_core(true, now - 1);
      }
      set_value(now - 1);
      if (slept) wake_.others_may_sleep();
      more = slept && now > 1;
    }
    // Two releases may have woken one of two sleepers.
    if (more) wake_.change_and_wake_one();
    return true;
  }

  /// What `me` holds; null when that is nothing.
  Word64* holder(Owner me) noexcept {
    for (std::uint32_t i = 0; i < slots_; ++i) {
      Word64& word = holders()[(me + i) % slots_];
      if (owner(word) == me && count(word) != 0) return &word;
    }
    return nullptr;
  }

  /// Where `me` may note a permit: its place or a free one; null when others have all.
  Word64* place_of(Owner me) noexcept {
    for (std::uint32_t i = 0; i < slots_; ++i) {
      Word64& word = holders()[(me + i) % slots_];
      if (owner(word) == me || count(word) == 0) return &word;
    }
    return nullptr;
  }

  void recount() noexcept {
    std::uint32_t held = 0;
    for (std::uint32_t i = 0; !travels() && i < slots_; ++i) held += count(holders()[i]);
    set_value(static_cast<std::uint32_t>(load(core_)) - held);
  }

  // All relaxed: they change and are read under the latch.
  static std::uint64_t load(const Word64& word) noexcept {
    return word.load(std::memory_order_relaxed);
  }
  static Owner owner(const Word64& word) noexcept { return static_cast<Owner>(load(word) >> 32); }
  static std::uint32_t count(const Word64& word) noexcept {
    return static_cast<std::uint32_t>(load(word));
  }
  static void put(Word64& word, Owner owner, std::uint32_t count) noexcept {
    word.store(std::uint64_t{owner} << 32 | count, std::memory_order_relaxed);
  }
  void set_core(bool travels, std::uint32_t pool) noexcept {
    core_.store(std::uint64_t{travels} << 32 | pool, std::memory_order_relaxed);
  }
  void set_value(std::uint32_t value) noexcept { value_.store(value, std::memory_order_relaxed); }

  Word64* holders() noexcept { return reinterpret_cast<Word64*>(this + 1); }

  Lock latch_;
  BasicWakeWord<Atomics> wake_;
  typename Atomics::Word value_;
  Word64 core_;
  std::uint32_t maximum_;
  std::uint32_t slots_;
};

using Semaphore = BasicSemaphore<SystemAtomics>;
static_assert(sizeof(Semaphore) == 128);

}  // namespace shoal::sync
