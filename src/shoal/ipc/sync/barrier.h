// A barrier of the family, in a block: sync::Barrier with processes as members.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/sync/owners.h"
#include "shoal/ipc/sync/shared_spin_policy.h"
#include "shoal/os/clock.h"
#include "shoal/sync/barrier.h"

namespace shoal::ipc {

/// A value that holds its block: copies, also in other processes, are the same barrier.
///
/// Threads, processes: any of the family.
/// Death: who has arrived once and is killed breaks it, within a slice of those that wait, unless
/// it called leave() before.
/// Fork: the member is the parent.
class Barrier {
 public:
  static constexpr std::uint32_t kMaxParties = 16384;

  /// Throws OutOfMemory.
  explicit Barrier(std::uint32_t parties) {
    const std::uint32_t members = std::max(parties, 16u);
    const std::size_t bytes = sync::Barrier::bytes(members);
    block_ = Block::allocate(bytes, BlockKind::kSync);
    std::memset(block_.data(), 0, bytes);
    words().init(parties, members);
  }
  explicit Barrier(Block block) noexcept : block_(std::move(block)) {}

  const Block& block() const noexcept { return block_; }

  [[nodiscard]] sync::Arrival arrive() noexcept {
    return words().arrive(Owners(*block_.heap()).self());
  }
  /// By the last: all go on. False when it broke meanwhile.
  [[nodiscard]] bool complete(std::uint32_t round) noexcept { return words().complete(round); }
  /// Waits until state(round) is not kOpen. kInterrupted: a signal handler ran.
  [[nodiscard]] sync::WaitOutcome wait(std::uint32_t round, os::Deadline deadline) noexcept {
    const Owners owners(*block_.heap());
    // Each waiter looks at all members.
    const auto slice = kSlice * std::max(1u, words().parties() / 16);
    return wait_in_slices(
        deadline, slice,
        [&](os::Deadline until) {
          return words().wait(round, SharedSpinPolicy::of_signals(), until);
        },
        [&] {
          words().check_members(owners.liveness());
          return words().state(round) != sync::RoundState::kOpen;
        });
  }
  sync::RoundState state(std::uint32_t round) const noexcept { return words().state(round); }

  void abort() noexcept { words().abort(); }
  /// The same, unless `round` is over: by one that waits for it no longer.
  void abandon(std::uint32_t round) noexcept { words().abandon(round); }
  void reset() noexcept { words().reset(); }
  /// This process will not come again.
  void leave() noexcept { words().leave(Owners(*block_.heap()).self()); }

  bool broken() const noexcept { return words().broken(); }
  /// Whose death broke it: 0 when no death did, -1 when its process id is not known any more.
  pid_t culprit() const noexcept {
    const sync::Owner culprit = words().culprit();
    return culprit == sync::kNobody ? 0 : Owners(*block_.heap()).pid(culprit);
  }
  std::uint32_t parties() const noexcept { return words().parties(); }
  std::uint32_t arrived() const noexcept { return words().arrived(); }

 private:
  sync::Barrier& words() const noexcept { return *reinterpret_cast<sync::Barrier*>(block_.data()); }

  Block block_;
};

}  // namespace shoal::ipc
