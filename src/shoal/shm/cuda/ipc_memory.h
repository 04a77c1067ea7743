// Memory that somebody else allocated with cudaMalloc, as another process maps it.
//
// The driver's rules: the allocation as a whole crosses, so what lies within it is an offset from
// its base; its owner must keep it while others have it open; a process opens it once at a time,
// and never its own.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/shm/cuda/device.h"

namespace shoal::shm::cuda {

/// Where an address lies, for another process; a value.
struct IpcPlace {
  abi::IpcHandle handle{};   // of the allocation
  std::uint64_t offset = 0;  // of the address in it
};

/// Whether the memory at an address is of a kind that can: torch's expandable segments and
/// cudaMallocAsync's is not. True where the driver does not know.
bool can_cross(const Device& device, abi::Address address);

/// Throws InvalidArgument when the memory cannot cross, DriverError.
IpcPlace ipc_place_of(const Device& device, abi::Address address);

/// An allocation of another process, mapped here; a resource.
/// Threads: any.
class IpcMemory {
 public:
  /// Throws DriverError, also when the process that made it is gone.
  IpcMemory(std::shared_ptr<const Device> device, const abi::IpcHandle& handle);
  ~IpcMemory();
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  abi::Address address() const noexcept { return address_; }

 private:
  std::shared_ptr<const Device> device_;
  abi::Address address_ = 0;
};

}  // namespace shoal::shm::cuda
