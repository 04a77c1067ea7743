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

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "shoal/ipc/heap/block.h"
#include "tensors/tensor_form.h"

namespace shoal::python {

/// Where the bytes of a storage lie: a block, how far within it they begin, and how many they are.
struct HeapLocation {
  ipc::Block block;
  std::uint64_t start = 0;
  std::uint64_t bytes = 0;
};

/// The location of the known storage that begins at an address and has at least so many bytes, if
/// there is one. Somebody keeps the memory meanwhile.
std::optional<HeapLocation> known_location(const std::byte* address, std::uint64_t least_bytes);

/// The location of a storage, if it lies in the heap. Where a larger one begins there, that one's.
std::optional<HeapLocation> location_of(nanobind::handle storage);

/// Moves the bytes of a CPU storage into a block of the heap, in place: all tensors on it follow,
/// and its size is fixed. Nothing happens to one that lies there already. Nothing is returned, and
/// nothing done, where this torch's storages cannot be moved (Exchange::kNone). `storage` has
/// `bytes` > 0 bytes, is not in shared memory of torch, and is not copied on write: the address of
/// its bytes has been asked for. Throws OutOfMemory, leaving the storage as it was.
std::optional<HeapLocation> move_to_heap(nanobind::handle storage, std::uint64_t bytes);

std::uint64_t bytes_of(nanobind::handle storage);

/// Whether a storage on the CPU is in shared memory of torch.
bool is_shared_by_torch(nanobind::handle storage);

/// The storage of this process for a location: the one that lies there, or a new one.
nanobind::object storage_at(HeapLocation location);

/// Has tensor_at() make others of its form from this tensor, while it lives: that is shorter. It is
/// on the storage at the location, and reads neither conjugate nor negative.
void remember_tensor(const HeapLocation& location, nanobind::handle tensor);

/// A tensor of that form on that storage. The form must lie within the location. `plain`: nobody
/// will set its bits (TorchApi::set_bits()), so that others may be made from it.
nanobind::object tensor_at(HeapLocation location, const TensorForm& form, bool plain);

}  // namespace shoal::python
