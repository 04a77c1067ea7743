// The table of a heap's processes.
#pragma once

#include <cstdint>
#include <optional>

#include "shoal/ipc/heap/heap_segment.h"
#include "shoal/ipc/heap/process_slot.h"
#include "shoal/os/process/process_id.h"

namespace shoal::ipc {

/// A value, which borrows the segment.
///
/// Threads, processes: calls are made under the heap's lock, as parts of a transaction, unless said
/// otherwise.
/// Death: of a process in a slot: the slot stays its own until somebody sweeps it (condemn(), then
/// release()).
class ProcessSlots {
 public:
  using Transaction = layout::Transaction;
  using State = layout::SlotState;
  explicit ProcessSlots(const HeapSegment& segment) noexcept : segment_(&segment) {}

  /// A slot for `process`: kAlive, or kUnborn for a child that it is about to have. Nothing when
  /// all are taken. Throws OutOfMemory.
  std::optional<ProcessSlot> take(Transaction& change, os::ProcessId process, State state) const;

  /// The child of a fork takes the slot that its parent made for it; false when the parent is dead
  /// and the slot has been given back.
  bool adopt(Transaction& change, ProcessSlot slot, os::ProcessId process) const;

  /// The first step of sweeping a slot: from now on its process counts as dead, and no child can
  /// adopt it. False when there is nothing to sweep: another process has the slot, or the child
  /// that it was made for has been born meanwhile.
  bool condemn(Transaction& change, ProcessSlot slot) const;

  /// The last step, for a slot whose process holds nothing any more.
  void release(Transaction& change, std::uint32_t index) const;

  /// Without the lock, too: the process that has the slot now; nobody when it is free.
  ProcessSlot at(std::uint32_t index) const noexcept;

  /// Without the lock, too: whether that process still runs; asks the kernel, which takes some
  /// microseconds. A child that is not born yet is alive as long as its parent.
  bool alive(ProcessSlot slot) const noexcept;

  /// Without the lock, too: its process id; 0 when it does not have the slot any more.
  os::ProcessId process(ProcessSlot slot) const noexcept;

  std::uint32_t count() const noexcept;  // indices from 0 that were ever taken

  std::uint64_t place(std::uint32_t index) const noexcept {
    return segment_->header().slots_at + std::uint64_t{index} * sizeof(layout::ProcessWords);
  }
  State state(std::uint32_t index) const noexcept;

 private:
  void write(Transaction& change, std::uint32_t index, os::ProcessId process) const;

  const HeapSegment* segment_;
};

}  // namespace shoal::ipc
