#include "shoal/shm/cuda/ipc_memory.h"

#include <fmt/format.h>

namespace shoal::shm::cuda {

bool can_cross(const Device& device, abi::Address address) {
  const Driver& driver = device.driver();
  const Device::Current current(device);
  int capable = 0;
  // The attribute came with CUDA 11.3; without it, cuIpcGetMemHandle says what it thinks.
  return driver.cuPointerGetAttribute(&capable, abi::kPointerLegacyIpcCapable, address) !=
             abi::kSuccess ||
         capable != 0;
}

IpcPlace ipc_place_of(const Device& device, abi::Address address) {
  const Driver& driver = device.driver();
  const Device::Current current(device);
  if (!can_cross(device, address)) {
    throw InvalidArgument(fmt::format(
        "the memory at {:#x} of CUDA device {} cannot cross to another process: torch's expandable "
        "segments and cudaMallocAsync make such memory. Move the tensor with share_memory_(), or "
        "run without them (PYTORCH_CUDA_ALLOC_CONF)",
        address, device.index()));
  }
  abi::Address base = 0;
  std::size_t bytes = 0;
  driver.check(driver.cuMemGetAddressRange(&base, &bytes, address), [&] {
    return fmt::format("find the allocation around {:#x} of CUDA device {} (cuMemGetAddressRange)",
                       address, device.index());
  });
  IpcPlace place;
  place.offset = address - base;
  driver.check(driver.cuIpcGetMemHandle(&place.handle, base), [&] {
    return fmt::format(
        "get a handle of the {} bytes at {:#x} of CUDA device {} (cuIpcGetMemHandle)", bytes, base,
        device.index());
  });
  return place;
}

IpcMemory::IpcMemory(std::shared_ptr<const Device> device, const abi::IpcHandle& handle)
    : device_(std::move(device)) {
  const Driver& driver = device_->driver();
  const Device::Current current(*device_);
  driver.check(driver.cuIpcOpenMemHandle(&address_, handle, abi::kIpcLazyEnablePeerAccess), [&] {
    return fmt::format("map another process's memory of CUDA device {} (cuIpcOpenMemHandle)",
                       device_->index());
  });
}

IpcMemory::~IpcMemory() {
  try {
    const Device::Current current(*device_);
    static_cast<void>(device_->driver().cuIpcCloseMemHandle(address_));
  } catch (const DriverError&) {
    // The driver is gone, and the mapping with it.
  }
}

}  // namespace shoal::shm::cuda
