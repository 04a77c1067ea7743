// Storages of torch whose bytes lie in a block of the family's heap.
//
// Threads: everything here is called with the GIL held; the copy of a large storage gives it back.
// The release of a storage may happen on any thread, without it.
// Invariants: one live storage of this process for one location in the heap, so that views stay
// views however often they are sent. A storage holds its block for as long as it has it; the last
// holder of all processes frees it.
// Death: the block is given back with the process's other references.
// Fork: the child holds what its parent's storages hold.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <optional>

#include "shoal/ipc/heap/block.h"

namespace shoal::python {

/// Where the bytes of a storage lie: a block, and how far within it they begin.
struct HeapLocation {
  ipc::Block block;
  std::uint64_t start = 0;
};

/// Where a storage lies in the heap, when it does.
std::optional<HeapLocation> location_of(const c10::StorageImpl& storage);

/// Moves the bytes of a CPU storage into a block of the heap, in place: all tensors on it follow.
/// Nothing happens to one that lies there already. Throws OutOfMemory, leaving the storage as it
/// was. `storage` has at least one byte.
HeapLocation move_to_heap(c10::StorageImpl& storage);

/// The storage of this process for `bytes` bytes at a location: the one that lies there, or a new
/// one.
c10::intrusive_ptr<c10::StorageImpl> storage_at(HeapLocation location, std::uint64_t bytes);

}  // namespace shoal::python
