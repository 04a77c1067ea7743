// One CUDA device as this process sees it, with its primary context: the one that torch uses, too.
//
// The number of a device differs between processes that see other devices (CUDA_VISIBLE_DEVICES);
// its UUID does not, so that is what crosses.
#pragma once

#include <memory>
#include <string>

#include "shoal/shm/cuda/driver.h"

namespace shoal::shm::cuda {

/// "GPU-5a3ce1c2-…", as nvidia-smi writes it.
std::string uuid_text(const abi::Uuid& uuid);

/// A resource: it holds the device's primary context for as long as it lives.
///
/// Threads: any.
class Device {
 public:
  /// How many devices this process sees.
  static int count();

  /// Makes the device's primary context where there is none, which costs device memory. Throws
  /// NoDriver, DriverError, InvalidArgument for a number that is not there.
  static std::shared_ptr<const Device> open(int index);

  /// The number here of the device with this UUID; -1 when this process does not see it. Makes no
  /// context.
  static int find(const abi::Uuid& uuid);

  /// The number of the device whose memory an address is. Throws DriverError for an address that is
  /// none of a device's.
  static int of_address(abi::Address address);

  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int index() const noexcept { return index_; }
  const abi::Uuid& uuid() const noexcept { return uuid_; }
  const Driver& driver() const noexcept { return driver_; }

  /// Whether memory of this device can be mapped for that one.
  bool reachable_from(int other) const;

  /// Whether the stream (of this device) records a graph: nothing may be asked of it then.
  bool is_capturing(abi::Stream stream) const;

  /// Queues a copy on a stream.
  void copy(abi::Address to, abi::Address from, std::size_t bytes, abi::Stream stream) const;

  /// This device's context is the calling thread's while the object lives, and what the thread asks
  /// of the driver breaks no graph that another one records.
  class Current {
   public:
    explicit Current(const Device& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Driver& driver_;
    bool pushed_ = false;  // else it was current before
    int capture_mode_ = abi::kCaptureRelaxed;
  };

 private:
  Device(const Driver& driver, int index, abi::DeviceOrdinal ordinal);

  const Driver& driver_;
  int index_;
  abi::DeviceOrdinal ordinal_;
  abi::Uuid uuid_{};
  abi::Context context_ = nullptr;
};

}  // namespace shoal::shm::cuda
