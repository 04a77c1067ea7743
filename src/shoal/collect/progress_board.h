// How far collectors in other processes are, and where they are to stop: words in a block of the
// family's heap, so that nobody needs to ask them.
//
// The bytes of its block, 128 for each collector:
//
//   offset  bytes  field
//        0      8  rows       made since the start, by all that had this place: steps of environments
//        8      8  signs      of life: counts up whenever the collector gets on
//       16      8  stop       the last order that is to end early; 0: none
//       24    104  zero
#pragma once

#include <cstdint>
#include <utility>

#include "shoal/ipc/heap/block.h"
#include "shoal/sync/atomics.h"

namespace shoal::collect {

/// A collector's words on a ProgressBoard; a view.
///
/// Threads, processes: one collector counts, any number look, one orders to stop.
/// Memory ordering: relaxed: counters, and a request that is seen a step later at worst. Nothing
/// is read on the strength of them.
/// Death: of the collector: what it has counted stays.
class ProgressLine {
 public:
  struct Words {
    sync::SystemAtomics::Word64 rows;
    sync::SystemAtomics::Word64 signs;
    sync::SystemAtomics::Word64 stop;
    std::uint64_t unused[13];
  };
  static_assert(sizeof(Words) == 128);

  explicit ProgressLine(Words& words) noexcept : words_(&words) {}

  std::uint64_t rows() const noexcept { return words_->rows.load(std::memory_order_relaxed); }
  std::uint64_t signs() const noexcept { return words_->signs.load(std::memory_order_relaxed); }

  void count_rows(int rows) noexcept {
    words_->rows.fetch_add(static_cast<std::uint64_t>(rows), std::memory_order_relaxed);
    give_sign();
  }
  void give_sign() noexcept { words_->signs.fetch_add(1, std::memory_order_relaxed); }

  /// Orders up to this number end after the step that is under way.
  void stop(std::uint64_t order) noexcept { words_->stop.store(order, std::memory_order_relaxed); }
  bool is_stopped(std::uint64_t order) const noexcept {
    return order <= words_->stop.load(std::memory_order_relaxed);
  }

 private:
  Words* words_;
};

/// The lines of some collectors; a resource.
class ProgressBoard {
 public:
  /// All zero. Throws InvalidArgument for fewer than one collector, OutOfMemory.
  static ProgressBoard create(int collectors);
  /// That of another process of the family.
  explicit ProgressBoard(ipc::Block block) noexcept : block_(std::move(block)) {}

  int collectors() const noexcept {
    return static_cast<int>(block_.size() / sizeof(ProgressLine::Words));
  }
  const ipc::Block& block() const noexcept { return block_; }
  /// Throws InvalidArgument for a number that is no collector's.
  ProgressLine line(int collector) const;

 private:
  ipc::Block block_;
};

}  // namespace shoal::collect
