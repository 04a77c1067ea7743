// Which of the machine's GPUs a worker computes on: the one that the fewest workers have.
//
// The first holder of device "1" holds an abstract Unix socket named "shoal/lease/gpu/1/0", the
// second one "shoal/lease/gpu/1/1", and so on. As with ports (port_lease.h), the kernel takes the
// name back when the process ends, however it ends; and workers of all programs in one network
// namespace are counted.
#pragma once

#include <span>
#include <string>

#include "shoal/os/fd.h"
#include "shoal/os/process/making_process.h"

namespace shoal::process {

/// A numbered place on a device, until release(); a resource.
///
/// Threads: one at a time.
/// Processes: all of one network namespace take places from the same devices.
/// Death: of this process: the kernel gives the place back.
/// Fork: the lease stays the parent's; the child's copy does nothing.
class GpuLease {
 public:
  /// The least crowded of `devices`, as CUDA_VISIBLE_DEVICES names them; the first of those that
  /// are equal. Two that ask at the same time get different places. Throws InvalidArgument where
  /// there are no devices, or one's name is empty or longer than 64 characters.
  static GpuLease take(std::span<const std::string> devices);

  GpuLease(GpuLease&& other) noexcept = default;
  GpuLease& operator=(GpuLease&&) = delete;
  ~GpuLease() { release(); }

  const std::string& device() const noexcept { return device_; }
  /// How many had the device already.
  int place() const noexcept { return place_; }
  /// False once it is released, and in a forked child.
  explicit operator bool() const noexcept;

  /// Idempotent.
  void release() noexcept;

 private:
  GpuLease(os::Fd socket, std::string device, int place);

  os::Fd socket_;
  os::MakingProcess maker_;
  std::string device_;
  int place_;
};

}  // namespace shoal::process
