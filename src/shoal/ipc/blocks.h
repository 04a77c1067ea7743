// Blocks: small ones cut from slabs of one size, large ones a run of pages each.
//
// Threads and processes: all calls under the heap's lock, as parts of a transaction, unless said
// otherwise. `block` is the place of a BlockWords, 64 bytes before what the user sees.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/ipc/heap_segment.h"
#include "shoal/ipc/references.h"

namespace shoal::ipc {

/// What is asked of a new block.
struct BlockSpec {
  std::uint64_t bytes = 0;  // for the user
  std::uint64_t kind = 0;   // 0 to 255, for statistics

  std::uint64_t whole_bytes() const noexcept { return bytes + sizeof(layout::BlockWords); }
  bool is_small() const noexcept { return whole_bytes() <= layout::kLargestSmall; }
  std::size_t block_class() const noexcept { return layout::class_of(whole_bytes()); }
  /// Of the run that it takes when there is no room: its own, or a slab's.
  std::uint64_t run_pages() const noexcept {
    return is_small() ? layout::slab_pages(block_class())
                      : (whole_bytes() + layout::kPage - 1) / layout::kPage;
  }
};

class Blocks {
 public:
  using Transaction = layout::Transaction;
  explicit Blocks(const HeapSegment& segment) noexcept : segment_(&segment), references_(segment) {}

  /// A block from what is there: a slab with room, or dirty pages. Nothing when memory must be got
  /// first: put_run(). It has no reference yet.
  std::optional<std::uint64_t> take(Transaction& change, const BlockSpec& spec) const;

  /// A run with memory becomes a slab for such blocks, or the block itself, which is returned.
  std::optional<std::uint64_t> put_run(Transaction& change, PageRun run,
                                       const BlockSpec& spec) const;

  /// Drops a reference. A block without any is free, or dying while it holds others itself.
  void drop(Transaction& change, std::uint64_t ref) const;

  /// One step of freeing what dying blocks hold; false when there are none.
  bool finish_one(Transaction& change) const;

  /// Whether there is a live block at this offset of a payload, with this serial (0: any). Needs
  /// the lock only.
  bool is_live(Offset payload, std::uint64_t serial) const noexcept;

  /// Throws Error when there is no live block at this offset of a payload, or (`serial` != 0) it is
  /// not the one that had this serial. Returns its place. Needs the lock only.
  std::uint64_t find(Offset payload, std::uint64_t serial) const;

 private:
  /// Writes what is in front of the bytes; nothing leads there yet.
  void start(Transaction& change, std::uint64_t block, const BlockSpec& spec,
             std::uint64_t home) const;
  void free(Transaction& change, std::uint64_t block) const;
  void free_small(Transaction& change, std::uint64_t block, std::uint64_t slab) const;
  void link_slab(Transaction& change, std::uint64_t slab) const;
  void unlink_slab(Transaction& change, std::uint64_t slab) const;

  const HeapSegment* segment_;
  References references_;
};

/// How many blocks a slab of this class has room for.
constexpr std::uint64_t slab_capacity(std::size_t block_class) noexcept {
  return (layout::slab_pages(block_class) * layout::kPage - sizeof(layout::SlabWords)) /
         layout::kClassBytes[block_class];
}

}  // namespace shoal::ipc
