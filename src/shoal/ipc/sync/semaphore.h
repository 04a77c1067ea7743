// A semaphore of the family, in a block: sync::Semaphore with processes as holders.
#pragma once

#include <cstdint>

#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/sync/owners.h"
#include "shoal/os/clock.h"
#include "shoal/sync/semaphore.h"

namespace shoal::ipc {

/// A value that holds its block: copies, also in other processes, are the same semaphore.
///
/// Threads, processes: any of the family.
/// Death: of a holder: whoever waits gets its permits back within a slice, as OwnerDeath says.
/// Where one process acquires permits and another releases them, see sync::Semaphore.
/// Fork: what the parent holds is not the child's.
class Semaphore {
 public:
  static constexpr std::uint32_t kMaxValue = sync::Semaphore::kMaxValue;

  /// Throws OutOfMemory.
  Semaphore(std::uint32_t value, std::uint32_t maximum, OwnerDeath on_death);
  explicit Semaphore(Block block) noexcept : block_(std::move(block)) {}

  const Block& block() const noexcept { return block_; }

  [[nodiscard]] bool try_acquire() noexcept;
  /// Never waits: takes a free permit, or a dead holder's; else kTimedOut.
  Acquisition acquire_now() noexcept;
  /// Waits for a permit. kInterrupted: a signal handler ran; wait again.
  Acquisition acquire(os::Deadline deadline = os::kNoDeadline) noexcept;
  /// False when the maximum is there already.
  [[nodiscard]] bool release() noexcept;

  std::uint32_t value() const noexcept { return words().value(); }
  std::uint32_t maximum() const noexcept { return words().maximum(); }
  std::uint32_t held() const noexcept;  // by this process, as far as permits do not travel
  OwnerDeath on_death() const noexcept;

 private:
  sync::Semaphore& words() const noexcept;
  bool recover(pid_t& dead) noexcept;
  std::uint32_t& on_death_word() const noexcept;

  Block block_;
};

}  // namespace shoal::ipc
