// A lock of the family: plain or recursive, any number of them, a block each.
//
//   offset  bytes  field
//        0      4  word: the owner (sync::OwnedLock)
//        4      4  depth: how often a recursive one is held
//        8      8  thread: who holds it within the owner (owner and number); 0: nobody
//       16      4  owner's process id, for messages
//       20      4  recovered: whether the owner has it from a dead one
//       24      4  recursive
//       28      4  what the owner's death does (OwnerDeath)
#pragma once

#include <cstdint>

#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/sync/owners.h"
#include "shoal/os/clock.h"
#include "shoal/sync/owned_lock.h"

namespace shoal::ipc {

enum class ReleaseOutcome : std::uint8_t { kReleased, kFree, kNotOwner };

/// A value that holds its block: copies, also in other processes, are the same lock.
///
/// Threads, processes: any of the family. Any of them may release a plain lock; only the thread
/// that has it may release a recursive one.
/// Memory ordering: what was written before release() is visible after the next acquisition.
/// Death: as its OwnerDeath says, within a slice of the wait.
/// Fork: what the parent holds is not the child's.
class Lock {
 public:
  Lock(bool recursive, OwnerDeath on_death);  // throws OutOfMemory
  explicit Lock(Block block) noexcept : block_(std::move(block)) {}

  const Block& block() const noexcept { return block_; }

  /// Never waits and makes no system call; does not look whether the owner is dead.
  [[nodiscard]] bool try_acquire() noexcept;
  /// Never waits: acquires it where it is free, or where its owner is dead; else kTimedOut.
  Acquisition acquire_now() noexcept;
  /// Waits until this thread has it. kInterrupted: a signal handler ran; wait again.
  Acquisition acquire(os::Deadline deadline = os::kNoDeadline) noexcept;
  [[nodiscard]] ReleaseOutcome release() noexcept;

  /// For a condition variable: releases it, however deep, and restores the depth after an
  /// acquire().
  std::uint32_t release_all() noexcept;
  void restore_depth(std::uint32_t depth) noexcept;

  bool is_mine() const noexcept;          // this thread has it
  bool is_this_process() const noexcept;  // one of this process's threads has it
  bool is_free() const noexcept;
  std::uint32_t depth() const noexcept;  // of a recursive one; 1 for a plain one that is held
  bool recovered() const noexcept;       // whoever has it has it from a dead owner
  bool recursive() const noexcept { return words().recursive != 0; }
  OwnerDeath on_death() const noexcept { return static_cast<OwnerDeath>(words().on_death); }

 private:
  struct Words {
    sync::OwnedLock word;
    std::atomic<std::uint32_t> depth;
    std::atomic<std::uint64_t> thread;
    std::atomic<std::int32_t> pid;
    std::atomic<std::uint32_t> recovered;
    std::uint32_t recursive;
    std::uint32_t on_death;
  };
  static_assert(sizeof(Words) == 32);

  Words& words() const noexcept { return *reinterpret_cast<Words*>(block_.data()); }
  bool recover(pid_t& dead) noexcept;
  void have(bool recovered) noexcept;

  Block block_;
};

}  // namespace shoal::ipc
