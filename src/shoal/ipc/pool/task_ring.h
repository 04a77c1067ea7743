// Messages from one process to one other, through memory that both map.
//
//   cells of 16 bytes; a record begins at a cell and never wraps:
//
//   offset  bytes  field
//        0      4  state    Record::State: what has become of it
//        4      4  bytes    of payload in this record
//        8      8  tag      whose message this is
//       16      8  total    bytes of the message, of which this record may be a part
//       24      8  nanos    the sender's own: how long a task ran
//       32      4  kind     the sender's own
//       36      4  more     1: the next record goes on with this message
//       40      8  zero
//       48         payload, padded to whole cells
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "shoal/sync/spsc_indices.h"

namespace shoal::ipc {

/// The head of a record, in shared memory.
struct TaskRecord {
  enum State : std::uint32_t { kQueued = 0, kTaken = 1, kRevoked = 2, kPadding = 3 };

  sync::SystemAtomics::Word state;
  std::uint32_t bytes;
  std::uint64_t tag;
  std::uint64_t total;
  std::uint64_t nanos;
  std::uint32_t kind;
  std::uint32_t more;
  std::uint64_t zero;

  /// Changes the state from kQueued to `next`; false when the other side was first. Only the side
  /// that succeeds acts on the record. The payload is ordered by the indices, not by this word.
  bool move_to(State next) noexcept {
    std::uint32_t queued = kQueued;
    return state.compare_exchange_strong(queued, next, std::memory_order_acq_rel,
                                         std::memory_order_acquire);
  }
};
static_assert(sizeof(TaskRecord) == 48);

/// A ring of records; a view of memory that it does not own.
///
/// Threads, processes, memory ordering: as sync::SpscIndices.
/// Death: of either side on any line: a record is there whole or not at all.
class TaskRing {
 public:
  static constexpr std::uint32_t kCell = 16;
  static constexpr std::uint32_t kHead = sizeof(TaskRecord) / kCell;

  TaskRing() noexcept = default;
  /// `cells`: a power of two.
  TaskRing(sync::SpscIndices* indices, std::byte* memory, std::uint32_t cells) noexcept
      : indices_(indices), memory_(memory), cells_(cells) {}

  /// The most that one record carries: so little that it fits wherever the ring's end is.
  std::uint32_t max_payload() const noexcept { return cells_ * kCell / 4; }

  /// Producer: publishes a record with `payload`, at most max_payload(); its position for at(), or
  /// nullptr when there is no room now.
  TaskRecord* try_write(const TaskRecord& head, std::span<const std::byte> payload) noexcept {
    const std::uint32_t wanted = cells_for(static_cast<std::uint32_t>(payload.size()));
    std::uint32_t at = indices_->write_index() % cells_;
    const std::uint32_t padding = at + wanted > cells_ ? cells_ - at : 0;
    if (indices_->writable(cells_) < padding + wanted) return nullptr;
    if (padding > 0) {
      // A head needs three cells, and padding may be less: the state and the length are enough.
      auto* pad = reinterpret_cast<TaskRecord*>(memory_ + std::size_t{at} * kCell);
      pad->state.store(TaskRecord::kPadding, std::memory_order_relaxed);  // published below
      pad->bytes = padding;
      at = 0;
    }
    auto* record = reinterpret_cast<TaskRecord*>(memory_ + std::size_t{at} * kCell);
    record->bytes = static_cast<std::uint32_t>(payload.size());
    record->tag = head.tag;
    record->total = head.total;
    record->nanos = head.nanos;
    record->kind = head.kind;
    record->more = head.more;
    record->zero = 0;
    record->state.store(TaskRecord::kQueued, std::memory_order_relaxed);  // published below
    if (!payload.empty()) {
      std::memcpy(reinterpret_cast<std::byte*>(record + 1), payload.data(), payload.size());
    }
    indices_->publish(padding + wanted);
    return record;
  }

  /// Consumer: the oldest record, or nullptr. It stays where it is until pop().
  TaskRecord* front() noexcept {
    for (;;) {
      const std::uint32_t readable = indices_->readable();
      if (readable == 0 || readable > cells_) return nullptr;
      const std::uint32_t at = indices_->read_index() % cells_;
      auto* record = reinterpret_cast<TaskRecord*>(memory_ + std::size_t{at} * kCell);
      const bool padding = record->state.load(std::memory_order_acquire) == TaskRecord::kPadding;
      if (!padding && cells_ - at >= kHead) return record;
      indices_->consume(padding ? std::min(record->bytes, cells_ - at) : cells_ - at);
    }
  }
  /// Never more than lies in the ring, whatever the other side has written.
  std::span<const std::byte> payload(const TaskRecord* record) const noexcept {
    return {reinterpret_cast<const std::byte*>(record + 1), bytes_of(record)};
  }
  void pop(const TaskRecord* record) noexcept { indices_->consume(cells_for(bytes_of(record))); }

  /// Producer: the index behind the last record that was written, and the consumer's.
  std::uint32_t written() const noexcept { return indices_->write_index(); }
  std::uint32_t consumed() const noexcept { return indices_->read_index(); }

  /// While nobody else uses it: empty.
  void reset() noexcept { indices_->reset(); }

 private:
  std::uint32_t bytes_of(const TaskRecord* record) const noexcept {
    const std::byte* const end = memory_ + std::size_t{cells_} * kCell;
    const auto room =
        static_cast<std::size_t>(end - reinterpret_cast<const std::byte*>(record + 1));
    return static_cast<std::uint32_t>(std::min<std::size_t>(record->bytes, room));
  }
  static std::uint32_t cells_for(std::uint32_t bytes) noexcept {
    return kHead + (bytes + kCell - 1) / kCell;
  }

  sync::SpscIndices* indices_ = nullptr;
  std::byte* memory_ = nullptr;
  std::uint32_t cells_ = 0;
};

}  // namespace shoal::ipc
