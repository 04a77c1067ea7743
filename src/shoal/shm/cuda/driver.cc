#include "shoal/shm/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <mutex>

namespace shoal::shm::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

/// One symbol of the library; `names` in the order in which they are tried.
template <class Function, std::size_t N>
void find(void* library, Function*& function, const std::array<const char*, N>& names) {
  for (const char* name : names) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    if (function != nullptr) return;
  }
  throw NoDriver(
      fmt::format("the CUDA driver ({}) has no {}: it is older than CUDA 11.2; install a newer one",
                  kLibrary, names.back()));
}

Driver load() {
  // Never closed: threads of the driver run until the end of the process.
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw NoDriver(fmt::format("cannot open the CUDA driver: {}", ::dlerror()));
  }
  Driver driver;
#define SHOAL_CUDA_FIND(function) find(library, driver.function, std::array{#function})
#define SHOAL_CUDA_FIND_V2(function) \
  find(library, driver.function, std::array{#function "_v2", #function})
  SHOAL_CUDA_FIND(cuInit);
  SHOAL_CUDA_FIND(cuGetErrorName);
  SHOAL_CUDA_FIND(cuGetErrorString);
  SHOAL_CUDA_FIND(cuDeviceGetCount);
  SHOAL_CUDA_FIND(cuDeviceGet);
  SHOAL_CUDA_FIND_V2(cuDeviceGetUuid);
  SHOAL_CUDA_FIND(cuDeviceGetAttribute);
  SHOAL_CUDA_FIND(cuDeviceCanAccessPeer);
  SHOAL_CUDA_FIND(cuDevicePrimaryCtxRetain);
  SHOAL_CUDA_FIND_V2(cuDevicePrimaryCtxRelease);
  SHOAL_CUDA_FIND(cuCtxGetCurrent);
  SHOAL_CUDA_FIND_V2(cuCtxPushCurrent);
  SHOAL_CUDA_FIND_V2(cuCtxPopCurrent);
  SHOAL_CUDA_FIND(cuPointerGetAttribute);
  SHOAL_CUDA_FIND_V2(cuMemGetAddressRange);
  SHOAL_CUDA_FIND_V2(cuMemcpyDtoDAsync);
  SHOAL_CUDA_FIND(cuMemGetAllocationGranularity);
  SHOAL_CUDA_FIND(cuMemCreate);
  SHOAL_CUDA_FIND(cuMemRelease);
  SHOAL_CUDA_FIND(cuMemExportToShareableHandle);
  SHOAL_CUDA_FIND(cuMemImportFromShareableHandle);
  SHOAL_CUDA_FIND(cuMemAddressReserve);
  SHOAL_CUDA_FIND(cuMemAddressFree);
  SHOAL_CUDA_FIND(cuMemMap);
  SHOAL_CUDA_FIND(cuMemUnmap);
  SHOAL_CUDA_FIND(cuMemSetAccess);
  SHOAL_CUDA_FIND(cuIpcGetMemHandle);
  SHOAL_CUDA_FIND_V2(cuIpcOpenMemHandle);
  SHOAL_CUDA_FIND(cuIpcCloseMemHandle);
  SHOAL_CUDA_FIND(cuIpcGetEventHandle);
  SHOAL_CUDA_FIND(cuIpcOpenEventHandle);
  SHOAL_CUDA_FIND(cuEventCreate);
  SHOAL_CUDA_FIND_V2(cuEventDestroy);
  SHOAL_CUDA_FIND(cuEventRecord);
  SHOAL_CUDA_FIND(cuEventQuery);
  SHOAL_CUDA_FIND(cuEventSynchronize);
  SHOAL_CUDA_FIND(cuStreamWaitEvent);
  SHOAL_CUDA_FIND(cuStreamIsCapturing);
  SHOAL_CUDA_FIND(cuThreadExchangeStreamCaptureMode);
#undef SHOAL_CUDA_FIND_V2
#undef SHOAL_CUDA_FIND
  return driver;
}

}  // namespace

const Driver& Driver::get() {
  static std::mutex mutex;
  static const Driver* ready = nullptr;
  const std::lock_guard lock(mutex);
  if (ready == nullptr) {
    auto driver = std::make_unique<const Driver>(load());
    const abi::Result result = driver->cuInit(0);
    driver->check(result, [&] {
      return fmt::format("initialise the CUDA driver (cuInit{})",
                         result == abi::kNotInitialized
                             ? "; a process that was forked after CUDA was used never can"
                         : result == abi::kNoDevice ? "; see CUDA_VISIBLE_DEVICES"
                                                    : "");
    });
    ready = driver.release();
  }
  return *ready;
}

std::string Driver::describe(abi::Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != abi::kSuccess || name == nullptr) name = "error";
  if (cuGetErrorString(result, &text) != abi::kSuccess || text == nullptr) text = "unknown";
  return fmt::format("{} ({}): {}", name, result, text);
}

void Driver::fail(abi::Result result, const std::string& attempt) const {
  throw DriverError(fmt::format("cannot {}: {}", attempt, describe(result)), result);
}

}  // namespace shoal::shm::cuda
