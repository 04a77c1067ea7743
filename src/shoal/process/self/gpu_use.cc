#include "shoal/process/self/gpu_use.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>

namespace shoal::process {
namespace {

constexpr int kCudaSuccess = 0;

/// The number of devices that an initialised driver shows; nothing when there is no driver or it is
/// not initialised.
std::optional<int> cuda_devices() {
  // RTLD_NOLOAD: only a driver that somebody else has loaded; cuDeviceGetCount fails, and
  // initialises nothing, before cuInit.
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return std::nullopt;
  std::optional<int> devices;
  using CuDeviceGetCount = int (*)(int*);
  if (auto count_devices =
          reinterpret_cast<CuDeviceGetCount>(::dlsym(driver, "cuDeviceGetCount"))) {
    int count = 0;
    if (count_devices(&count) == kCudaSuccess) devices = count;
  }
  ::dlclose(driver);
  return devices;
}

std::optional<std::string> open_compute_device() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.starts_with("/dev/nvidia") || target == "/dev/kfd") return target;
  }
  return std::nullopt;
}

}  // namespace

bool cuda_initialised() { return cuda_devices().has_value(); }

std::optional<std::string> gpu_in_use() {
  if (const auto devices = cuda_devices(); devices.value_or(0) > 0) {
    return fmt::format("the CUDA driver is initialised and sees {} device(s)", *devices);
  }
  if (const auto device = open_compute_device()) return fmt::format("{} is open", *device);
  return std::nullopt;
}

}  // namespace shoal::process
