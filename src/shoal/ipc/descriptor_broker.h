// Where the family's descriptors that belong to blocks of the heap are kept for whoever needs them,
// and where a process gets the heap that was not started with it.
//
// One process of the family has the broker, on a thread: the first that is asked to. Who has a
// descriptor leaves a copy there, once; who needs it gets one, once; neither need live for the
// other. The broker closes what belongs to a block that nobody holds any more: at once when it is
// told to look, within a second when all that held it were killed.
//
// Threads: any.
// Processes: those of this family and user; others are not spoken to.
// Death: of the process with the broker: what was left there is lost, and the next that leaves
// something opens another.
// Fork: a child has no broker. (The name of its socket is in a network namespace: all processes have
// to be in one.)
#pragma once

#include <cstdint>
#include <functional>

#include "shoal/ipc/block.h"
#include "shoal/os/fd.h"

namespace shoal::ipc {

/// Runs its argument on a thread of its own.
using StartThread = std::function<void(std::function<void()>)>;

/// Opens the broker in this process, unless another one of the family has it. Whether it is here now.
/// Throws SystemError.
bool open_descriptor_broker(const StartThread& start = {});

/// Leaves a copy of a descriptor, until nobody holds the block; opens a broker where there is none.
/// Returns who has it. Throws Error, SystemError, TimedOut.
ProcessSlot leave_descriptor(const Block& block, int fd);

/// What was left for this block; none when nothing was, or there is no broker. Throws SystemError,
/// also when this process may not open more; TimedOut.
os::Fd fetch_descriptor(Offset block, std::uint64_t serial);

/// In a process that was started without the family's heap: attaches it, by the broker of the family.
/// Nothing where it is attached. Throws InvalidState when this process has another heap; Error when
/// the family has no broker (any more); SystemError, TimedOut.
void join_family(std::uint64_t heap_id);

/// Has the broker look which blocks are gone.
void look_at_descriptors() noexcept;

}  // namespace shoal::ipc
