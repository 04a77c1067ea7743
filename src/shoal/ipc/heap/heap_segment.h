// The memory of a heap as one process has it mapped, and the lock on it.
#pragma once

#include <cstdint>

#include "shoal/ipc/heap/heap_layout.h"
#include "shoal/ipc/heap/page_runs.h"
#include "shoal/os/error.h"
#include "shoal/os/fd.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/os/memory/memfd.h"

namespace shoal::ipc {

/// There is no memory, or no room in the heap, for what was asked (Python: OSError with ENOMEM).
class OutOfMemory : public SystemError {
 public:
  explicit OutOfMemory(const std::string& attempt, int error_number = ENOMEM)
      : SystemError(attempt, error_number) {}
};

/// A mapped heap without any state of this process; a resource.
///
/// Threads: any; words of the segment are read and written under the lock unless said otherwise.
/// Processes: each maps it at its own address.
/// Invariants: the geometry was checked when attaching and never changes.
/// Death: the memory goes with the last process that has it mapped, or has its descriptor.
/// Fork: the child has the same mapping.
class HeapSegment {
 public:
  using Transaction = layout::Transaction;

  /// A new heap of at most `bytes`, or less where limits of this process or the kernel refuse.
  /// 0: four times the machine's memory. Throws SystemError naming sizes and limits.
  static HeapSegment create(std::uint64_t bytes);

  /// Takes over a descriptor; throws Error when it is not that of a heap of this version.
  static HeapSegment attach(os::Fd fd);

  std::byte* base() const noexcept { return mapping_.data(); }
  std::uint64_t bytes() const noexcept { return memfd_.bytes(); }
  layout::HeapHeader& header() const noexcept {
    return *reinterpret_cast<layout::HeapHeader*>(base());
  }
  const os::Memfd& memfd() const noexcept { return memfd_; }
  const PageRuns& runs() const noexcept { return runs_; }

  /// The word at `place` as it is now; for a caller with the lock, or one that can use any value
  /// that the word has had.
  std::uint64_t load(std::uint64_t place) const noexcept {
    return layout::Journal::word(base(), place).load(std::memory_order_relaxed);
  }
  /// Writes a word that no list leads to yet.
  void store(std::uint64_t place, std::uint64_t value) const noexcept {
    layout::Journal::word(base(), place).store(value, std::memory_order_relaxed);
  }

  std::uint64_t page_place(std::uint64_t page) const noexcept {
    return data_at_ + page * layout::kPage;
  }
  std::uint64_t data_at() const noexcept { return data_at_; }

  /// Gives the first `count` entries of a table memory, where they have none yet; the word at
  /// `ready_place` counts those that have. Throws OutOfMemory.
  void make_ready(Transaction& change, std::uint64_t ready_place, std::uint64_t table_at,
                  std::uint64_t entry_bytes, std::uint64_t count) const;

 private:
  HeapSegment(os::Memfd memfd, os::Mapping mapping);

  os::Memfd memfd_;
  os::Mapping mapping_;
  PageRuns runs_;
  std::uint64_t data_at_ = 0;
};

/// Holds a heap's lock, and the transaction that is made under it; a resource.
///
/// Threads, processes: one at a time; all others wait. Locking it twice in one thread is a bug and
/// aborts.
/// Death: whoever locks it next finishes or undoes the dead process's transaction first.
class HeapLock {
 public:
  explicit HeapLock(const HeapSegment& segment) noexcept;
  ~HeapLock();
  HeapLock(const HeapLock&) = delete;
  HeapLock& operator=(const HeapLock&) = delete;

  layout::Transaction change;

 private:
  sync::RobustLock& lock_;
};

}  // namespace shoal::ipc
