// The processes of a heap as owners of locks, permits and other things of sync: a ProcessSlot in 31
// bits, and a wait that asks in slices whether owners are alive.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include "shoal/ipc/heap/heap.h"
#include "shoal/os/clock.h"
#include "shoal/sync/owner.h"
#include "shoal/sync/wait_outcome.h"

namespace shoal::ipc {

/// What becomes of the things that a dead process owns.
enum class OwnerDeath : std::uint32_t {
  kRecover,  // whoever waits gets them, and is told
  kRaise,    // they are free again, and whoever waits is told instead of getting them
  kIgnore,   // they stay the dead process's until somebody releases them
};

/// How an acquisition went. `dead` is the id of the process whose death made it possible: 0 where
/// nobody died, -1 where the id is not known any more.
struct [[nodiscard]] Acquisition {
  sync::WaitOutcome outcome = sync::WaitOutcome::kTimedOut;
  pid_t dead = 0;
};

/// The processes of one heap as owners; a value, which borrows the heap.
/// Threads: any.
/// Processes: any of the family; an Owner means the same process in all of them.
/// Death: lives() asks the kernel.
/// Limit: a slot that was used again exactly 2^kEpochBits times while something was still held
/// under it is taken for the one before.
class Owners {
 public:
  static constexpr unsigned kEpochBits = 16;

  explicit Owners(const Heap& heap) noexcept : heap_(heap) {}

  sync::Owner self() const noexcept { return owner_of(heap_.self()); }
  /// Asks the kernel.
  bool lives(sync::Owner owner) const noexcept {
    const ProcessSlot slot = slot_of(owner);
    return slot && heap_.alive(slot);
  }
  /// Its process id; -1 when another process has its slot by now.
  pid_t pid(sync::Owner owner) const noexcept {
    const ProcessSlot slot = slot_of(owner);
    const pid_t pid = slot ? heap_.pid_of(slot) : 0;
    return pid == 0 ? -1 : pid;
  }
  auto liveness() const noexcept {
    return [*this](sync::Owner owner) { return lives(owner); };
  }

 private:
  static constexpr std::uint32_t kEpochMask = (1u << kEpochBits) - 1;

  // Never 0, since index + 1 is not: nobody.
  static sync::Owner owner_of(ProcessSlot slot) noexcept {
    return (slot.index + 1) << kEpochBits | (slot.epoch & kEpochMask);
  }
  /// Nobody when another process has the slot now.
  ProcessSlot slot_of(sync::Owner owner) const noexcept {
    if (owner == sync::kNobody) return {};
    const ProcessSlot now = heap_.slot_at((owner >> kEpochBits) - 1);
    return (now.epoch & kEpochMask) == (owner & kEpochMask) ? now : ProcessSlot{};
  }

  const Heap& heap_;
};

/// Waits until `deadline` in slices. `wait(until) -> WaitOutcome` sleeps for a slice. `look() ->
/// bool` is asked after each slice and at the deadline: whether a death has made what is waited for
/// available. The first slices are short, so that a death of long ago is found at once; the later
/// ones are `longest`.
template <class Wait, class Look>
sync::WaitOutcome wait_in_slices(os::Deadline deadline, std::chrono::milliseconds longest,
                                 Wait wait, Look look) {
  std::chrono::milliseconds slice(2);
  for (;;) {
    const os::Deadline until = std::min(deadline, os::deadline_after(slice));
    const sync::WaitOutcome outcome = wait(until);
    if (outcome != sync::WaitOutcome::kTimedOut) return outcome;
    if (look()) return sync::WaitOutcome::kReady;
    if (until == deadline) return sync::WaitOutcome::kTimedOut;
    slice = std::min(slice * 4, longest);
  }
}

inline constexpr std::chrono::milliseconds kSlice{100};

}  // namespace shoal::ipc
