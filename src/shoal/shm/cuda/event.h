// A point in the work of a stream that other streams, of this and of other processes, wait for.
#pragma once

#include <memory>

#include "shoal/shm/cuda/device.h"

namespace shoal::shm::cuda {

/// An event without timing; a resource.
/// Threads: any, one record() at a time.
class Event {
 public:
  /// For this process alone.
  static Event create(std::shared_ptr<const Device> device) { return make(std::move(device), 0); }
  /// One that handle() names to others.
  static Event create_shared(std::shared_ptr<const Device> device) {
    return make(std::move(device), abi::kEventInterprocess);
  }
  /// Another process's. Throws DriverError, also when that process is gone.
  static Event open(std::shared_ptr<const Device> device, const abi::IpcHandle& handle);

  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  /// Stands for the work that is queued on the stream now. Throws DriverError.
  void record(abi::Stream stream);
  /// Whether that work is done; true before the first record(). Throws DriverError, for work that
  /// failed, too.
  bool done() const;
  /// Waits for it on the host.
  void wait() const;
  /// What is queued on `stream` from now on begins after it. Does not wait on the host.
  void hold_back(abi::Stream stream) const;

  abi::IpcHandle handle() const;
  const std::shared_ptr<const Device>& device() const noexcept { return device_; }

 private:
  static Event make(std::shared_ptr<const Device> device, unsigned flags);
  Event(std::shared_ptr<const Device> device, abi::EventHandle event) noexcept
      : device_(std::move(device)), event_(event) {}

  std::shared_ptr<const Device> device_;
  abi::EventHandle event_ = nullptr;
};

}  // namespace shoal::shm::cuda
