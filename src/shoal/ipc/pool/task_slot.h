// How a pool's worker takes tasks and gives results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shoal/ipc/heap/block.h"
#include "shoal/ipc/pool/task_segment.h"
#include "shoal/os/clock.h"
#include "shoal/os/fd.h"
#include "shoal/os/process/pidfd.h"
#include "shoal/sync/spin_policy.h"

namespace shoal::ipc {

/// A worker's slot in its pool's segment, in that worker's process; a resource.
///
/// Threads: one.
/// Processes: the worker that has the slot; the pool's owner is the other side.
/// Death: of this process on any line: the owner knows which task it had begun, gives those that it
/// had not begun to others, and has the results that were sent whole. Of the owner: calls end with
/// kStopped within about 100 ms.
class TaskSlot {
 public:
  enum class Outcome : std::uint8_t {
    kReady,
    kStopped,   // the pool wants this worker to leave, or is gone
    kTimedOut,  // nothing yet: wait again
  };

  struct Task {
    std::uint64_t tag;
    std::uint64_t total_bytes;
  };

  /// `shelf`: TaskScheduler::shelf() of this slot, where results may name blocks of the heap.
  /// Throws Error when the descriptor is not a TaskSegment's; SystemError when its owner is gone.
  TaskSlot(os::Fd segment, int index, Block shelf = {});

  /// Waits for something in the ring of tasks.
  [[nodiscard]] Outcome wait(os::Deadline deadline);

  /// After kReady: begins the oldest task; nothing when it was given to somebody else meanwhile.
  std::optional<Task> begin();

  /// After begin(): copies the payload into `out`, which has total_bytes. Waits for the parts that
  /// have not arrived.
  [[nodiscard]] Outcome read(std::span<std::byte> out);

  /// Sends a result; waits while the owner has no room for it.
  [[nodiscard]] Outcome send(TaskReport report, std::uint64_t tag,
                             std::span<const std::byte> payload);

  /// As send(kDone, …), of a value that names these blocks. They are held until the value is
  /// dropped, whatever becomes of this process. Throws OutOfMemory, before anything is sent.
  [[nodiscard]] Outcome send_done(std::uint64_t tag, std::span<const std::byte> payload,
                                  std::span<const Offset> blocks);

 private:
  bool owner_is_gone();
  Outcome make_room();

  TaskSegment segment_;
  os::PidFd owner_;
  SlotWords& words_;
  TaskRing tasks_;
  TaskRing results_;
  Block shelf_;
  sync::SpinPolicy policy_;
  os::Deadline begun_{};
};

}  // namespace shoal::ipc
