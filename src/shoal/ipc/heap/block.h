// A reference of this process on a block of the heap.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "shoal/ipc/heap/heap.h"

namespace shoal::ipc {

/// Holds one block; a copy holds it once more. A value. The bytes stay where they are while anybody
/// in the family holds them.
///
/// Threads: as a std::shared_ptr: any may copy one, one at a time may change one.
/// Processes: of this one; another process of the family acquires the block by its offset.
/// Death: of this process: Heap::sweep() gives its references back.
/// Fork: the child's copies hold the block, too.
class Block {
 public:
  Block() noexcept = default;

  /// A new block of this process's heap. Throws OutOfMemory.
  static Block allocate(std::size_t bytes, BlockKind kind = BlockKind::kData) {
    auto heap = Heap::here();
    const Offset offset = heap->allocate(bytes, kind);
    return Block(std::move(heap), offset);
  }

  /// Another reference on a block that somebody holds. Throws Error when there is none.
  static Block acquire(Offset offset, std::uint64_t serial = 0) {
    auto heap = Heap::here();
    heap->acquire(offset, serial);
    return Block(std::move(heap), offset);
  }

  /// Takes over a reference that this process has already (of allocate(), acquire() or take()).
  static Block adopt(std::shared_ptr<Heap> heap, Offset offset) noexcept {
    return Block(std::move(heap), offset);
  }

  Block(const Block& other) : heap_(other.heap_), offset_(other.offset_) {
    if (offset_ != 0) heap_->acquire(offset_);
  }
  Block(Block&& other) noexcept
      : heap_(std::move(other.heap_)), offset_(std::exchange(other.offset_, 0)) {}
  Block& operator=(Block other) noexcept {
    std::swap(heap_, other.heap_);
    std::swap(offset_, other.offset_);
    return *this;
  }
  ~Block() {
    if (offset_ != 0) heap_->release(offset_);
  }

  explicit operator bool() const noexcept { return offset_ != 0; }
  Offset offset() const noexcept { return offset_; }
  std::byte* data() const noexcept { return heap_->at(offset_); }
  std::size_t size() const noexcept { return heap_->size_of(offset_); }
  std::uint64_t serial() const noexcept { return heap_->serial_of(offset_); }
  const std::shared_ptr<Heap>& heap() const noexcept { return heap_; }

  /// Gives the reference away: the caller releases it.
  [[nodiscard]] Offset detach() noexcept { return std::exchange(offset_, 0); }

 private:
  Block(std::shared_ptr<Heap> heap, Offset offset) noexcept
      : heap_(std::move(heap)), offset_(offset) {}

  std::shared_ptr<Heap> heap_;
  Offset offset_ = 0;
};

}  // namespace shoal::ipc
