// What a block of the heap says of device memory: the block stands for that memory, and whoever
// holds the block holds the memory.
//
//   kSegment   memory that crosses by a descriptor, which the broker keeps for this block
//   kRange     bytes of a segment, whose block it holds
//   kForeign   bytes of an allocation that torch's allocator made, by cudaIpc
//   kEvent     a point in a stream
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shoal/ipc/heap/block.h"
#include "shoal/shm/cuda/driver_abi.h"
#include "shoal/sync/atomics.h"

namespace shoal::ipc {

inline constexpr std::uint64_t kDeviceMagic = 0x3145434956454453;  // "SDEVICE1"
inline constexpr std::uint32_t kDeviceVersion = 1;

enum class DeviceKind : std::uint32_t { kSegment = 1, kRange, kForeign, kEvent };

struct DeviceRecord {
  using Word = sync::SystemAtomics::Word64;

  std::uint64_t magic;
  std::uint32_t version;
  DeviceKind kind;
  std::uint64_t owner;  // packed ProcessSlot of who made it
  std::uint64_t bytes;
  std::uint64_t offset;  // in the segment, or the allocation
  Offset segment;        // kRange
  std::uint64_t segment_serial;
  Word word;  // kSegment: packed ProcessSlot of who has the descriptor; kEvent: 1 once it is over
  shm::cuda::abi::Uuid uuid;         // of the device
  shm::cuda::abi::IpcHandle handle;  // kForeign, kEvent
};
static_assert(sizeof(DeviceRecord) == 144 && std::is_standard_layout_v<DeviceRecord> &&
              offsetof(DeviceRecord, uuid) == 64);

/// Throws InvalidArgument when the block describes no device memory.
DeviceRecord& device_record(const Block& block);

/// A block with a record of this process's making, but for what belongs to its kind. Throws
/// OutOfMemory.
Block new_device_record(DeviceKind kind, const shm::cuda::abi::Uuid& device);

}  // namespace shoal::ipc
