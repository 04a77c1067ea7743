// The memory that a pool shares with its workers.
//
//   offset            field
//        0            TaskSegmentHeader: magic, version, slots, cells of each ring
//      128            results: a doorbell that every worker rings and the pool's owner waits at
//      256 + i × S    slot i: SlotWords, then its ring of tasks, then its ring of results
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "shoal/ipc/heap/heap_layout.h"
#include "shoal/ipc/pool/task_ring.h"
#include "shoal/os/fd.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"

namespace shoal::ipc {

/// What a result record says; TaskRecord::kind.
enum class TaskReport : std::uint32_t {
  kReady = 1,        // the worker has begun; no payload
  kDone = 2,         // the task returned; its value
  kRaised = 3,       // the task raised; its exception
  kCannotBegin = 4,  // the initializer raised; its exception
  // The task returned; the offset of a block with the value, which holds the blocks that the value
  // names and is given to the shelf of the worker's slot.
  kDoneInHeap = 5,
};

struct TaskSegmentHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t slots;
  std::uint32_t cells;  // of each ring; a power of two
  std::uint32_t owner;  // process id
};
static_assert(sizeof(TaskSegmentHeader) == 24);

/// One worker's slot.
struct SlotWords {
  sync::Doorbell tasks;                         // rung for the worker: a task, or stop
  alignas(128) sync::SystemAtomics::Word stop;  // 1: leave once the ring of tasks is empty
  sync::SpscIndices task_indices;
  sync::SpscIndices result_indices;
};
static_assert(sizeof(SlotWords) == 128 * 6);

/// The segment, mapped; a resource.
///
/// Threads, processes: the owner uses it through its TaskScheduler, a worker through its TaskSlot.
/// Death: of anybody: the rings stay whole (TaskRing). The memory goes with the last process that
/// has it mapped, or has its descriptor.
class TaskSegment {
 public:
  static constexpr std::size_t kDefaultRingBytes = 256 * 1024;

  /// Throws InvalidArgument for no slots, or a ring that is no power of two of at least 4096 bytes;
  /// SystemError when memory is short.
  static TaskSegment create(int slots, std::size_t ring_bytes = kDefaultRingBytes);
  /// Throws Error when the descriptor is something else.
  static TaskSegment attach(os::Fd fd);

  int fd() const noexcept { return arena_.fd(); }
  int slots() const noexcept { return static_cast<int>(header_.slots); }
  int owner() const noexcept { return static_cast<int>(header_.owner); }
  sync::Doorbell& results() const noexcept { return *arena_.at<sync::Doorbell>(kResultsAt); }
  SlotWords& slot(int index) const;
  TaskRing tasks(int index) const;
  TaskRing results(int index) const;

 private:
  static constexpr std::uint64_t kMagic = 0x4b534154'4c414f48;  // "HOALTASK"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kResultsAt = 128;
  static constexpr std::size_t kSlotsAt = 256;

  TaskSegment(shm::Arena arena, const TaskSegmentHeader& header) noexcept
      : arena_(std::move(arena)), header_(header) {}
  std::size_t ring_bytes() const noexcept { return std::size_t{header_.cells} * TaskRing::kCell; }
  std::size_t slot_at(int index) const;

  shm::Arena arena_;
  TaskSegmentHeader header_;  // a copy: what was checked stays so
};

}  // namespace shoal::ipc
