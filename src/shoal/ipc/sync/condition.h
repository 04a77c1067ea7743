// A condition variable of the family, in a block; its lock is a Lock beside it.
#pragma once

#include <cstdint>
#include <cstring>

#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/sync/lock.h"
#include "shoal/ipc/sync/owners.h"
#include "shoal/ipc/sync/shared_spin_policy.h"
#include "shoal/os/clock.h"
#include "shoal/sync/condition.h"

namespace shoal::ipc {

/// A value that holds its block: copies, also in other processes, are the same condition.
///
/// Threads, processes: any of the family; wait() and notify() are for who has the lock.
/// Invariants: notify(n) ends n waits of living waiters, those that began first, if there are as
/// many.
/// Death: a dead waiter's notification is handed on within a slice.
/// Fork: the waiter is the parent.
/// Limit: of more than kWaiters waiters at a time, those beyond wake at every notification.
class Condition {
 public:
  static constexpr std::uint32_t kWaiters = 64;
  using WaiterSlot = sync::Condition::WaiterSlot;

  Condition() : block_(Block::allocate(sync::Condition::bytes(kWaiters), BlockKind::kSync)) {
    std::memset(block_.data(), 0, sync::Condition::bytes(kWaiters));
    words().init(kWaiters);
  }
  explicit Condition(Block block) noexcept : block_(std::move(block)) {}

  const Block& block() const noexcept { return block_; }

  /// Releases `lock`, which this thread has, waits until notified or `deadline`, and acquires
  /// `lock` again to the same depth. Returns whether it was notified; `taken_back` is how the lock
  /// was acquired again.
  bool wait(Lock& lock, os::Deadline deadline, Acquisition* taken_back = nullptr) noexcept {
    const WaiterSlot at = enter();
    const std::uint32_t depth = lock.release_all();
    while (sleep(at, deadline) == sync::WaitOutcome::kInterrupted) {
    }
    const bool notified = leave(at);
    Acquisition acquired = lock.acquire();
    while (acquired.outcome != sync::WaitOutcome::kReady) acquired = lock.acquire();
    lock.restore_depth(depth);
    if (taken_back != nullptr) *taken_back = acquired;
    return notified;
  }

  // The parts of wait(), for a caller that must do something between slices.
  [[nodiscard]] WaiterSlot enter() noexcept {
    const Owners owners(*block_.heap());
    return words().enter(owners.self(), owners.liveness());
  }
  [[nodiscard]] sync::WaitOutcome sleep(WaiterSlot at, os::Deadline deadline) noexcept {
    const Owners owners(*block_.heap());
    return wait_in_slices(
        deadline, kSlice,
        [&](os::Deadline until) { return words().wait(at, SharedSpinPolicy::of_signals(), until); },
        [&] {
          words().hand_on(owners.liveness());
          return false;
        });
  }
  [[nodiscard]] bool leave(WaiterSlot at) noexcept { return words().leave(at); }

  std::uint32_t notify(std::uint32_t count) noexcept {
    return words().notify(count, Owners(*block_.heap()).liveness());
  }
  std::uint32_t waiting() const noexcept { return words().waiting(); }

 private:
  sync::Condition& words() const noexcept {
    return *reinterpret_cast<sync::Condition*>(block_.data());
  }

  Block block_;
};

}  // namespace shoal::ipc
