#include "shoal/shm/cuda/memory.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

namespace shoal::shm::cuda {
namespace {

abi::AllocationProperties properties_for(const Device& device) {
  abi::AllocationProperties properties{};
  properties.type = abi::kAllocationPinned;
  properties.requested_handle_types = abi::kHandlePosixFd;
  properties.location = {abi::kLocationDevice, device.index()};
  return properties;
}

void require_descriptors(const Device& device) {
  int supported = 0;
  const Driver& driver = device.driver();
  driver.check(driver.cuDeviceGetAttribute(&supported, abi::kHandleTypePosixFd, device.index()),
               [&] { return fmt::format("ask CUDA device {} what it can", device.index()); });
  if (supported == 0) {
    throw Error(fmt::format(
        "CUDA device {} has no memory that crosses to other processes by descriptor; send tensors "
        "of torch's allocator instead, which cross by cudaIpc",
        device.index()));
  }
}

}  // namespace

Memory Memory::create(std::shared_ptr<const Device> device, std::uint64_t bytes) {
  require_descriptors(*device);
  Memory memory;
  memory.device_ = std::move(device);
  const Driver& driver = memory.device_->driver();
  const Device::Current current(*memory.device_);
  const abi::AllocationProperties properties = properties_for(*memory.device_);
  std::size_t step = 0;
  driver.check(driver.cuMemGetAllocationGranularity(&step, &properties, abi::kGranularityMinimum),
               [&] { return std::string("ask for the granularity of device memory"); });
  memory.bytes_ = (bytes + step - 1) / step * step;
  driver.check(driver.cuMemCreate(&memory.handle_, memory.bytes_, &properties, 0), [&] {
    return fmt::format("allocate {} bytes of memory to share on CUDA device {} (cuMemCreate)",
                       memory.bytes_, memory.device_->index());
  });
  memory.allocated_ = true;
  memory.map();
  return memory;
}

Memory Memory::import(std::shared_ptr<const Device> device, int fd, std::uint64_t bytes) {
  Memory memory;
  memory.device_ = std::move(device);
  memory.bytes_ = bytes;
  const Driver& driver = memory.device_->driver();
  const Device::Current current(*memory.device_);
  driver.check(
      driver.cuMemImportFromShareableHandle(&memory.handle_,
                                            reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                            abi::kHandlePosixFd),
      [&] {
        return fmt::format(
            "take {} bytes of another process on CUDA device {} (cuMemImportFromShareableHandle)",
            bytes, memory.device_->index());
      });
  memory.allocated_ = true;
  memory.map();
  return memory;
}

void Memory::map() {
  const Driver& driver = device_->driver();
  const auto what = [this](const char* function) {
    return fmt::format("map {} bytes of CUDA device {} ({})", bytes_, device_->index(), function);
  };
  abi::Address reserved = 0;
  driver.check(driver.cuMemAddressReserve(&reserved, bytes_, 0, 0, 0),
               [&] { return what("cuMemAddressReserve"); });
  address_ = reserved;
  driver.check(driver.cuMemMap(address_, bytes_, 0, handle_, 0), [&] { return what("cuMemMap"); });
  mapped_ = true;
  std::vector<abi::AccessDescription> access;
  for (int other = 0, there = Device::count(); other < there; ++other) {
    if (!device_->reachable_from(other)) continue;
    access.push_back({{abi::kLocationDevice, other}, abi::kAccessReadWrite});
  }
  driver.check(driver.cuMemSetAccess(address_, bytes_, access.data(), access.size()),
               [&] { return what("cuMemSetAccess"); });
}

Memory::Memory(Memory&& other) noexcept
    : device_(std::move(other.device_)),
      bytes_(other.bytes_),
      allocated_(std::exchange(other.allocated_, false)),
      handle_(other.handle_),
      address_(std::exchange(other.address_, 0)),
      mapped_(std::exchange(other.mapped_, false)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this == &other) return *this;
  close();
  device_ = std::move(other.device_);
  bytes_ = other.bytes_;
  allocated_ = std::exchange(other.allocated_, false);
  handle_ = other.handle_;
  address_ = std::exchange(other.address_, 0);
  mapped_ = std::exchange(other.mapped_, false);
  return *this;
}

os::Fd Memory::export_fd() const {
  int fd = -1;
  const Driver& driver = device_->driver();
  driver.check(driver.cuMemExportToShareableHandle(&fd, handle_, abi::kHandlePosixFd, 0), [&] {
    return fmt::format(
        "get a descriptor of {} bytes of CUDA device {} "
        "(cuMemExportToShareableHandle)",
        bytes_, device_->index());
  });
  os::Fd owned(fd);
  os::set_inheritable(fd, false);
  return owned;
}

/// What the driver says when it has gone already, at the end of the process, is of no use.
void Memory::close() noexcept {
  if (!device_ || !(allocated_ || mapped_ || address_ != 0)) return;
  const Driver& driver = device_->driver();
  std::optional<Device::Current> current;
  try {
    current.emplace(*device_);
  } catch (const DriverError&) {
  }
  if (std::exchange(mapped_, false)) static_cast<void>(driver.cuMemUnmap(address_, bytes_));
  if (address_ != 0) static_cast<void>(driver.cuMemAddressFree(std::exchange(address_, 0), bytes_));
  if (std::exchange(allocated_, false)) static_cast<void>(driver.cuMemRelease(handle_));
}

}  // namespace shoal::shm::cuda
