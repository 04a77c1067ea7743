// An event of the family, in a block.
#pragma once

#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/sync/owners.h"
#include "shoal/ipc/sync/shared_spin_policy.h"
#include "shoal/os/clock.h"
#include "shoal/sync/event.h"

namespace shoal::ipc {

/// A value that holds its block: copies, also in other processes, are the same event.
///
/// Threads, processes: any of the family.
/// Death: on any line; a waiter finds within a slice what somebody set and did not live to tell.
/// Fork: parent and child use the same event.
class Event {
 public:
  Event() : block_(Block::allocate(sizeof(sync::Event), BlockKind::kSync)) {
    new (block_.data()) sync::Event{};
  }
  explicit Event(Block block) noexcept : block_(std::move(block)) {}

  const Block& block() const noexcept { return block_; }

  bool is_set() const noexcept { return words().is_set(); }
  void set() noexcept { words().set(); }
  void clear() noexcept { words().clear(); }

  /// Where a wait begins that may be resumed: a set() after this ends it.
  std::uint32_t sets() const noexcept { return words().sets(); }

  /// Waits until it is set, or was since `sets` was looked at. kInterrupted: a signal handler ran.
  [[nodiscard]] sync::WaitOutcome wait(std::uint32_t sets, os::Deadline deadline) noexcept {
    return wait_in_slices(
        deadline, kSlice,
        [&](os::Deadline until) {
          return words().wait(sets, SharedSpinPolicy::of_signals(), until);
        },
        [] { return false; });
  }

 private:
  sync::Event& words() const noexcept { return *reinterpret_cast<sync::Event*>(block_.data()); }

  Block block_;
};

}  // namespace shoal::ipc
