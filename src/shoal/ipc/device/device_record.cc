#include "shoal/ipc/device/device_record.h"

#include <new>

namespace shoal::ipc {

DeviceRecord& device_record(const Block& block) {
  auto& record = *reinterpret_cast<DeviceRecord*>(block.data());
  if (block.size() != sizeof record || record.magic != kDeviceMagic ||
      record.version != kDeviceVersion) {
    throw InvalidArgument("this block of the heap describes no device memory");
  }
  return record;
}

Block new_device_record(DeviceKind kind, const shm::cuda::abi::Uuid& device) {
  Block block = Block::allocate(sizeof(DeviceRecord));
  auto* record = new (block.data()) DeviceRecord{};
  record->magic = kDeviceMagic;
  record->version = kDeviceVersion;
  record->kind = kind;
  record->owner = block.heap()->self().packed();
  record->uuid = device;
  return block;
}

}  // namespace shoal::ipc
