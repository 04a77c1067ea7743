// Storages of torch on CUDA devices that other processes see.
//
// What torch's allocator made crosses by cudaIpc: its memory is exchanged for a view of it, and
// freed when no process holds it any more. What was moved into a segment of Shoal's outlives its
// process. Either way a block of the heap stands for the memory, and a process has one storage for
// it.
//
// Threads: with the GIL held; a storage may be released on any thread, without it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "shoal/ipc/heap/block.h"

namespace shoal::python {

/// What a message holds for a storage on a device.
struct DeviceParcel {
  ipc::Block record;
  ipc::Block mark;  // of the work that has written the storage; empty when that is done
};

struct DeviceStorage {
  nanobind::object storage;
  std::int32_t device = 0;
  std::uint64_t bytes = 0;
};

/// Once a process, before it sends or receives a tensor on a device. Cheap when it was called.
void before_device_tensors();

/// Has a storage of at least one byte cross. Nothing where it cannot: no driver of CUDA, memory that
/// its kind forbids (torch's expandable segments), or Exchange::kNone. Throws DriverError,
/// InvalidState.
std::optional<DeviceParcel> parcel_of(nanobind::handle storage, int device);

/// The storage of this process for what was sent; work that is queued from now on begins after the
/// sender's. Throws MemoryGone, Error.
DeviceStorage device_storage_of(const DeviceParcel& parcel);

/// Moves the bytes into a segment, in place: all tensors on the storage follow. Returns a tensor on
/// the memory that the storage had, which the copy still reads, on the current stream; None, and
/// nothing is done, for one that others may see already. `storage` has at least one byte. Throws
/// DriverError, OutOfMemory, and Error for Exchange::kNone.
nanobind::object move_to_segment(nanobind::handle storage, int device);

}  // namespace shoal::python
