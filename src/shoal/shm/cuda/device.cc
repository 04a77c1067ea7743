#include "shoal/shm/cuda/device.h"

#include <fmt/format.h>

namespace shoal::shm::cuda {

std::string uuid_text(const abi::Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

int Device::count() {
  const Driver& driver = Driver::get();
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count),
               [] { return std::string("count the CUDA devices (cuDeviceGetCount)"); });
  return count;
}

std::shared_ptr<const Device> Device::open(int index) {
  const Driver& driver = Driver::get();
  const int there = count();
  if (index < 0 || index >= there) {
    throw InvalidArgument(
        fmt::format("there is no CUDA device {}: this process sees {}", index, there));
  }
  abi::DeviceOrdinal ordinal = 0;
  driver.check(driver.cuDeviceGet(&ordinal, index),
               [&] { return fmt::format("get CUDA device {} (cuDeviceGet)", index); });
  return std::shared_ptr<const Device>(new Device(driver, index, ordinal));
}

Device::Device(const Driver& driver, int index, abi::DeviceOrdinal ordinal)
    : driver_(driver), index_(index), ordinal_(ordinal) {
  driver.check(driver.cuDeviceGetUuid(&uuid_, ordinal),
               [&] { return fmt::format("ask CUDA device {} for its UUID", index); });
  driver.check(driver.cuDevicePrimaryCtxRetain(&context_, ordinal), [&] {
    return fmt::format("hold the context of CUDA device {} (cuDevicePrimaryCtxRetain)", index);
  });
}

Device::~Device() { static_cast<void>(driver_.cuDevicePrimaryCtxRelease(ordinal_)); }

int Device::find(const abi::Uuid& uuid) {
  const Driver& driver = Driver::get();
  for (int index = 0, there = count(); index < there; ++index) {
    abi::DeviceOrdinal ordinal = 0;
    abi::Uuid found{};
    if (driver.cuDeviceGet(&ordinal, index) == abi::kSuccess &&
        driver.cuDeviceGetUuid(&found, ordinal) == abi::kSuccess && found == uuid) {
      return index;
    }
  }
  return -1;
}

int Device::of_address(abi::Address address) {
  const Driver& driver = Driver::get();
  int index = -1;
  driver.check(driver.cuPointerGetAttribute(&index, abi::kPointerDeviceOrdinal, address), [&] {
    return fmt::format("find the CUDA device of address {:#x} (cuPointerGetAttribute)", address);
  });
  return index;
}

bool Device::reachable_from(int other) const {
  if (other == index_) return true;
  abi::DeviceOrdinal ordinal = 0;
  int can = 0;
  return driver_.cuDeviceGet(&ordinal, other) == abi::kSuccess &&
         driver_.cuDeviceCanAccessPeer(&can, ordinal, ordinal_) == abi::kSuccess && can != 0;
}

bool Device::is_capturing(abi::Stream stream) const {
  const Current current(*this);
  int status = 0;
  // An error (the legacy stream while another one captures) is a reason to keep away, too.
  return driver_.cuStreamIsCapturing(stream, &status) != abi::kSuccess || status != 0;
}

void Device::copy(abi::Address to, abi::Address from, std::size_t bytes, abi::Stream stream) const {
  const Current current(*this);
  driver_.check(driver_.cuMemcpyDtoDAsync(to, from, bytes, stream), [&] {
    return fmt::format("copy {} bytes on CUDA device {} (cuMemcpyDtoDAsync)", bytes, index_);
  });
}

Device::Current::Current(const Device& device) : driver_(device.driver_) {
  abi::Context now = nullptr;
  driver_.check(driver_.cuCtxGetCurrent(&now),
                [] { return std::string("ask for the current context (cuCtxGetCurrent)"); });
  if (now != device.context_) {
    driver_.check(driver_.cuCtxPushCurrent(device.context_), [&] {
      return fmt::format("use the context of CUDA device {} (cuCtxPushCurrent)", device.index_);
    });
    pushed_ = true;
  }
  static_cast<void>(driver_.cuThreadExchangeStreamCaptureMode(&capture_mode_));
}

Device::Current::~Current() {
  static_cast<void>(driver_.cuThreadExchangeStreamCaptureMode(&capture_mode_));
  abi::Context popped = nullptr;
  if (pushed_) static_cast<void>(driver_.cuCtxPopCurrent(&popped));
}

}  // namespace shoal::shm::cuda
