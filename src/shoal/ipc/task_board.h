// The memory that a pool shares with its workers.
//
//   offset            field
//        0            BoardHeader: magic, version, seats, cells of each ring
//      128            results: a doorbell that every worker rings and the pool's owner waits at
//      256 + i × S    seat i: SeatWords, then its ring of tasks, then its ring of results
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "shoal/ipc/heap_layout.h"
#include "shoal/ipc/task_ring.h"
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
  // names and is given to the shelf of the worker's seat.
  kDoneInHeap = 5,
};

struct BoardHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t seats;
  std::uint32_t cells;  // of each ring; a power of two
  std::uint32_t owner;  // process id
};
static_assert(sizeof(BoardHeader) == 24);

/// One worker's place.
struct SeatWords {
  sync::Doorbell tasks;                         // rung for the worker: a task, or stop
  alignas(128) sync::SystemAtomics::Word stop;  // 1: leave once the ring of tasks is empty
  sync::SpscIndices task_indices;
  sync::SpscIndices result_indices;
};
static_assert(sizeof(SeatWords) == 128 * 6);

/// A resource.
///
/// Threads, processes: the memory is used as TaskScheduler (its owner) and TaskSeat (a worker) say.
class TaskBoard {
 public:
  static constexpr std::size_t kDefaultRingBytes = 256 * 1024;

  /// Throws InvalidArgument for no seats, or a ring that is no power of two of at least 4096 bytes;
  /// SystemError when memory is short.
  static TaskBoard create(int seats, std::size_t ring_bytes = kDefaultRingBytes);
  /// Throws Error when the descriptor is something else.
  static TaskBoard attach(os::Fd fd);

  int fd() const noexcept { return arena_.fd(); }
  int seats() const noexcept { return static_cast<int>(header().seats); }
  int owner() const noexcept { return static_cast<int>(header().owner); }
  sync::Doorbell& results() const noexcept { return *arena_.at<sync::Doorbell>(kResultsAt); }
  SeatWords& seat(int index) const;
  TaskRing tasks(int index) const;
  TaskRing results(int index) const;

 private:
  static constexpr std::uint64_t kMagic = 0x4b534154'4c414f48;  // "HOALTASK"
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kResultsAt = 128;
  static constexpr std::size_t kSeatsAt = 256;

  explicit TaskBoard(shm::Arena arena) noexcept : arena_(std::move(arena)) {}
  const BoardHeader& header() const noexcept { return *arena_.at<BoardHeader>(0); }
  std::size_t ring_bytes() const noexcept { return std::size_t{header().cells} * TaskRing::kCell; }
  std::size_t seat_at(int index) const;

  shm::Arena arena_;
};

}  // namespace shoal::ipc
