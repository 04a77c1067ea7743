// The broker for the family's descriptors: it keeps those that belong to blocks of the heap, and
// gives the heap itself to processes that were started without it.
//
// One process of the family has the broker, on a thread of its own: the first that opens one. A
// process that has a descriptor leaves a copy at the broker, once; a process that needs it fetches
// a copy, once. So the two need not be alive at the same time. The broker closes a descriptor when
// nobody holds its block any more: at once when it is told to look, and within a second when all
// holders were killed.
//
// Threads: any.
// Processes: those of this family and user, in one network namespace, which the name of the
// broker's socket belongs to. Others get no answer.
// Death: of the process with the broker: what was left there is lost; the next process that leaves
// a descriptor opens another broker.
// Fork: a child has no broker.
#pragma once

#include <cstdint>
#include <functional>

#include "shoal/ipc/heap/block.h"
#include "shoal/os/fd.h"

namespace shoal::ipc {

/// Runs its argument on a thread of its own.
using StartThread = std::function<void(std::function<void()>)>;

/// Opens the broker in this process, unless another one of the family has it. Returns whether it is
/// in this process now. Throws SystemError.
bool open_descriptor_broker(const StartThread& start = {});

/// Leaves a copy of a descriptor at the broker, until nobody holds the block; opens a broker where
/// there is none. Returns the process that has the broker. Throws Error, SystemError, TimedOut.
ProcessSlot leave_descriptor(const Block& block, int fd);

/// A copy of the descriptor that was left for this block; none when nothing was left, or when there
/// is no broker. Throws TimedOut, and SystemError, also when this process may not open more.
os::Fd fetch_descriptor(Offset block, std::uint64_t serial);

/// For a process that was started without the family's heap: gets it from the broker and attaches
/// it. Does nothing where it is attached. Throws InvalidState when this process has another heap,
/// Error when the family has no broker (any more), SystemError, TimedOut.
void join_family(std::uint64_t heap_id);

/// Has the broker close the descriptors of blocks that are gone.
void look_at_descriptors() noexcept;

}  // namespace shoal::ipc
