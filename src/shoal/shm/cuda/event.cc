#include "shoal/shm/cuda/event.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::shm::cuda {

Event Event::make(std::shared_ptr<const Device> device, unsigned flags) {
  const Driver& driver = device->driver();
  const Device::Current current(*device);
  abi::EventHandle event = nullptr;
  driver.check(driver.cuEventCreate(&event, abi::kEventDisableTiming | flags), [&] {
    return fmt::format("make an event on CUDA device {} (cuEventCreate)", device->index());
  });
  return {std::move(device), event};
}

Event Event::open(std::shared_ptr<const Device> device, const abi::IpcHandle& handle) {
  const Driver& driver = device->driver();
  const Device::Current current(*device);
  abi::EventHandle event = nullptr;
  driver.check(driver.cuIpcOpenEventHandle(&event, handle), [&] {
    return fmt::format("open another process's event on CUDA device {} (cuIpcOpenEventHandle)",
                       device->index());
  });
  return {std::move(device), event};
}

Event::Event(Event&& other) noexcept
    : device_(std::move(other.device_)), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(event_, other.event_);
  return *this;
}

Event::~Event() {
  if (event_ == nullptr) return;
  try {
    const Device::Current current(*device_);
    static_cast<void>(device_->driver().cuEventDestroy(event_));
  } catch (const DriverError&) {
    // The driver is gone, and the event with it.
  }
}

void Event::record(abi::Stream stream) {
  const Device::Current current(*device_);
  device_->driver().check(device_->driver().cuEventRecord(event_, stream), [&] {
    return fmt::format("record an event on CUDA device {} (cuEventRecord)", device_->index());
  });
}

bool Event::done() const {
  const Device::Current current(*device_);
  const abi::Result result = device_->driver().cuEventQuery(event_);
  if (result == abi::kNotReady) return false;
  device_->driver().check(result, [&] {
    return fmt::format("finish work on CUDA device {} (cuEventQuery)", device_->index());
  });
  return true;
}

void Event::wait() const {
  const Device::Current current(*device_);
  device_->driver().check(device_->driver().cuEventSynchronize(event_), [&] {
    return fmt::format("wait for work on CUDA device {} (cuEventSynchronize)", device_->index());
  });
}

void Event::hold_back(abi::Stream stream) const {
  const Device::Current current(*device_);
  device_->driver().check(device_->driver().cuStreamWaitEvent(stream, event_, 0), [&] {
    return fmt::format("have a stream of CUDA device {} wait (cuStreamWaitEvent)",
                       device_->index());
  });
}

abi::IpcHandle Event::handle() const {
  const Device::Current current(*device_);
  abi::IpcHandle handle{};
  device_->driver().check(device_->driver().cuIpcGetEventHandle(&handle, event_), [&] {
    return fmt::format("get a handle of an event on CUDA device {} (cuIpcGetEventHandle)",
                       device_->index());
  });
  return handle;
}

}  // namespace shoal::shm::cuda
