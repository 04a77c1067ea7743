// Who holds which block: one record for each pair, in a list of its holder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shoal/ipc/heap/heap_segment.h"

namespace shoal::ipc {

/// What holds references: a process (by its slot), or a block; a value.
/// Threads, processes: any; its word means the same in every process of the family.
/// Death: of a process: what it held is dropped with its slot (ProcessSlots).
class Holder {
 public:
  static Holder process(std::uint64_t slot_place) noexcept { return Holder(slot_place | 1); }
  static Holder block(std::uint64_t block_place) noexcept { return Holder(block_place); }
  static Holder of(std::uint64_t word) noexcept { return Holder(word); }

  std::uint64_t word() const noexcept { return word_; }
  bool is_process() const noexcept { return (word_ & 1) != 0; }
  /// Where the head of its list lies.
  std::uint64_t list_place() const noexcept {
    return is_process() ? (word_ & ~std::uint64_t{1}) + offsetof(layout::ProcessWords, held)
                        : word_ + offsetof(layout::BlockWords, held);
  }
  bool operator==(const Holder&) const = default;

 private:
  explicit Holder(std::uint64_t word) noexcept : word_(word) {}
  std::uint64_t word_;
};

/// A value, which borrows the segment. `ref` is the offset of a RefWords.
/// Threads, processes: every call is made under the heap's lock, as part of a transaction.
/// Death: the next process that takes the lock finishes or undoes the transaction.
class References {
 public:
  using Transaction = layout::Transaction;
  explicit References(const HeapSegment& segment) noexcept : segment_(&segment) {}

  /// A new reference on the block at `block`. Throws OutOfMemory.
  std::uint64_t make(Transaction& change, std::uint64_t block, Holder holder) const;

  /// Hands a reference on to another holder.
  void move(Transaction& change, std::uint64_t ref, Holder holder) const;

  /// Drops a reference and returns how many its block has left.
  std::uint64_t drop(Transaction& change, std::uint64_t ref) const;

  /// Whether `block` was given to `holder`, by the references alone: what lies at `block` may be no block.
  bool is_given(std::uint64_t block, Holder holder) const noexcept;

  std::uint64_t block(const Transaction& change, std::uint64_t ref) const {
    return change.get(ref + offsetof(layout::RefWords, block));
  }
  Holder holder(const Transaction& change, std::uint64_t ref) const {
    return Holder::of(change.get(ref + offsetof(layout::RefWords, holder)));
  }
  std::uint64_t next(const Transaction& change, std::uint64_t ref) const {
    return change.get(ref + offsetof(layout::RefWords, next));
  }

 private:
  void link(Transaction& change, std::uint64_t ref, Holder holder) const;
  void unlink(Transaction& change, std::uint64_t ref) const;

  const HeapSegment* segment_;
};

}  // namespace shoal::ipc
