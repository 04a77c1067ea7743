// The blocks of a heap: small ones are cut from slabs of one size, large ones are a run of pages
// each.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/ipc/heap/heap_segment.h"
#include "shoal/ipc/heap/references.h"

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

/// Makes and frees the blocks of one heap; a value, which borrows the segment. `block` is the
/// offset of a BlockWords, 64 bytes before what the user sees.
///
/// Threads, processes: every call is made under the heap's lock (HeapLock). Those that take a
/// Transaction are a part of it.
/// Death: the next process that takes the lock finishes or undoes the whole transaction.
class Blocks {
 public:
  using Transaction = layout::Transaction;
  explicit Blocks(const HeapSegment& segment) noexcept : segment_(&segment), references_(segment) {}

  /// A block from memory that is there: a slab with room, or dirty pages. Nothing when memory must
  /// be got first; see put_run(). The block has no reference yet.
  std::optional<std::uint64_t> take(Transaction& change, const BlockSpec& spec) const;

  /// Makes a run that has memory into a slab for such blocks; a large block takes the whole run,
  /// and is returned.
  std::optional<std::uint64_t> put_run(Transaction& change, PageRun run,
                                       const BlockSpec& spec) const;

  /// Drops a reference. A block without references is freed; one that still holds other blocks is
  /// dying until finish_one() has dropped those.
  void drop(Transaction& change, std::uint64_t ref) const;

  /// One step of freeing what dying blocks hold; false when there are none.
  bool finish_one(Transaction& change) const;

  /// Whether a live block's bytes begin at `payload`, and it has this serial (0: any).
  bool is_live(Offset payload, std::uint64_t serial) const noexcept;

  /// The live block whose bytes begin at `payload`. Throws Error when there is none, or when it has
  /// another serial than this one (0: any).
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
