// Runs of pages: which are free, with or without memory, and how they are cut and joined.
//
// Threads, processes: every call is made under the heap's lock (HeapLock), as part of a
// transaction.
// Invariants: runs tile the data from its start to `top`; the first and the last page of each run
// carry its tag; two free runs of a kind are never neighbours.
// Death: the next process that takes the lock finishes or undoes the transaction.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/ipc/heap/heap_layout.h"

namespace shoal::ipc {

struct PageRun {
  std::uint64_t first = 0;
  std::uint64_t pages = 0;
};

/// Where the tables of runs lie; a value.
class PageRuns {
 public:
  using Transaction = layout::Transaction;
  using State = layout::RunState;

  PageRuns(std::uint64_t runs_at, std::uint64_t pages) noexcept : at_(runs_at), pages_(pages) {}

  /// Cuts a run of `pages` from a free one of `kind` (kClean or kDirty), from one of the shortest
  /// that are long enough; the caller must tag it. Nothing when there is none.
  std::optional<PageRun> take(Transaction& change, State kind, std::uint64_t pages) const;

  /// Pages that nobody ever had, from the top; the caller must tag them. Their RunWords must have
  /// memory (HeapWords::runs_ready).
  std::optional<PageRun> grow(Transaction& change, std::uint64_t pages) const;

  /// Says what a run is.
  void tag(Transaction& change, PageRun run, State state) const;

  /// Makes a run free, joined with free neighbours of the same kind.
  void put(Transaction& change, PageRun run, State kind) const;

  /// The end of the longest dirty run, of at most `limit` pages; the caller must tag it.
  std::optional<PageRun> take_longest_dirty(Transaction& change, std::uint64_t limit) const;

  State state(const Transaction& change, std::uint64_t page) const {
    return static_cast<State>(change.get(tag_place(page)) & 0xff);
  }
  std::uint64_t length(const Transaction& change, std::uint64_t page) const {
    return change.get(tag_place(page)) >> 8;
  }

  /// The first page of the free run after `page` in its list, as page + 1.
  std::uint64_t next(const Transaction& change, std::uint64_t page) const {
    return change.get(links_place(page)) & 0xffffffff;
  }

 private:
  std::uint64_t tag_place(std::uint64_t page) const {
    return at_ + page * sizeof(layout::RunWords);
  }
  std::uint64_t links_place(std::uint64_t page) const { return tag_place(page) + 8; }
  void link(Transaction& change, PageRun run, State kind) const;
  void unlink(Transaction& change, PageRun run, State kind) const;

  std::uint64_t at_;
  std::uint64_t pages_;
};

}  // namespace shoal::ipc
