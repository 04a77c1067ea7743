// Memory of a CUDA device that processes share by a descriptor.
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/os/fd.h"
#include "shoal/shm/cuda/device.h"

namespace shoal::shm::cuda {

/// Physical memory of a device, mapped in this process for its device and for all that reach it; a
/// resource.
///
/// The memory lives while a process has it mapped or holds a descriptor of it: whoever made it may
/// let go, or die.
/// Threads: any.
/// Death: the kernel and the driver give back what a process held.
class Memory {
 public:
  Memory() noexcept = default;

  /// `bytes` rounded up to what the device maps (2 MiB as a rule), not initialised. Throws
  /// DriverError, also when there is not enough; Error where the device has no memory that crosses
  /// by descriptor.
  static Memory create(std::shared_ptr<const Device> device, std::uint64_t bytes);

  /// What export_fd() gave to another process; `bytes` are its bytes(). Borrows the descriptor.
  static Memory import(std::shared_ptr<const Device> device, int fd, std::uint64_t bytes);

  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory() { close(); }

  /// A new descriptor of the memory. Throws DriverError.
  os::Fd export_fd() const;

  abi::Address address() const noexcept { return address_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  const std::shared_ptr<const Device>& device() const noexcept { return device_; }
  explicit operator bool() const noexcept { return mapped_; }

 private:
  void map();
  void close() noexcept;

  std::shared_ptr<const Device> device_;
  std::uint64_t bytes_ = 0;
  bool allocated_ = false;
  abi::AllocationHandle handle_ = 0;
  abi::Address address_ = 0;  // 0: none reserved
  bool mapped_ = false;
};

}  // namespace shoal::shm::cuda
