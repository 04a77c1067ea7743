// Storages of torch on CUDA devices that other processes see.
//
// What torch's allocator made crosses by cudaIpc: its data pointer is wrapped, and freed when no
// process holds it any more. What was moved into a segment of Shoal's outlives its process. Either
// way a block of the heap stands for the memory, and a process has one storage for it.
//
// Threads: with the GIL held; a storage may be released on any thread, without it. Nothing here
// needs a torch that was built with CUDA: what torch knows of streams is asked of its device guard.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "shoal/ipc/heap/block.h"

namespace shoal::python {

/// What a message holds for a storage on a device.
struct DeviceParcel {
  ipc::Block record;
  ipc::Block mark;  // of the work that has written the storage; empty when that is done
};

/// Has a storage of at least one byte cross. Nothing where it cannot: no driver of CUDA, or memory
/// that its kind forbids (torch's expandable segments). Throws DriverError, InvalidState.
std::optional<DeviceParcel> parcel_of(c10::StorageImpl& storage);

/// The storage of this process for what was sent; work that is queued from now on begins after the
/// sender's. Throws MemoryGone, Error.
c10::intrusive_ptr<c10::StorageImpl> device_storage_of(const DeviceParcel& parcel);

/// Moves the bytes into a segment, in place: all tensors on the storage follow. Nothing happens to
/// one that others may see already. `storage` has at least one byte. Throws DriverError,
/// OutOfMemory.
void move_to_segment(c10::StorageImpl& storage);

/// A storage at an address of a device, which `owner` keeps.
c10::intrusive_ptr<c10::StorageImpl> storage_on_device(int device, std::uint64_t address,
                                                       std::uint64_t bytes,
                                                       std::shared_ptr<void> owner);

/// One without bytes.
c10::intrusive_ptr<c10::StorageImpl> empty_device_storage(int device);

}  // namespace shoal::python
