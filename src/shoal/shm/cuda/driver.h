// The CUDA driver of this machine, opened with dlopen: nothing of it is needed at build time, and
// nothing happens before somebody asks for it.
//
// Threads: any.
// Fork: a driver that is initialised cannot be used in a forked child; its calls fail there, and
// say so.
#pragma once

#include <string>
#include <string_view>

#include "shoal/os/error.h"
#include "shoal/shm/cuda/driver_abi.h"

namespace shoal::shm::cuda {

/// A call of the driver failed.
class DriverError : public Error {
 public:
  DriverError(const std::string& message, abi::Result result) : Error(message), result_(result) {}
  abi::Result result() const noexcept { return result_; }

 private:
  abi::Result result_;
};

/// There is no driver that can be used: none is installed, or it lacks what is needed.
class NoDriver : public Error {
 public:
  using Error::Error;
};

/// The functions that are used, each under its name in the driver without version.
struct Driver {
  abi::Result (*cuInit)(unsigned);
  abi::Result (*cuGetErrorName)(abi::Result, const char**);
  abi::Result (*cuGetErrorString)(abi::Result, const char**);
  abi::Result (*cuDeviceGetCount)(int*);
  abi::Result (*cuDeviceGet)(abi::DeviceOrdinal*, int);
  abi::Result (*cuDeviceGetUuid)(abi::Uuid*, abi::DeviceOrdinal);
  abi::Result (*cuDeviceGetAttribute)(int*, int, abi::DeviceOrdinal);
  abi::Result (*cuDeviceCanAccessPeer)(int*, abi::DeviceOrdinal, abi::DeviceOrdinal);
  abi::Result (*cuDevicePrimaryCtxRetain)(abi::Context*, abi::DeviceOrdinal);
  abi::Result (*cuDevicePrimaryCtxRelease)(abi::DeviceOrdinal);
  abi::Result (*cuCtxGetCurrent)(abi::Context*);
  abi::Result (*cuCtxPushCurrent)(abi::Context);
  abi::Result (*cuCtxPopCurrent)(abi::Context*);
  abi::Result (*cuPointerGetAttribute)(void*, int, abi::Address);
  abi::Result (*cuMemGetAddressRange)(abi::Address*, std::size_t*, abi::Address);
  abi::Result (*cuMemcpyDtoDAsync)(abi::Address, abi::Address, std::size_t, abi::Stream);
  abi::Result (*cuMemGetAllocationGranularity)(std::size_t*, const abi::AllocationProperties*, int);
  abi::Result (*cuMemCreate)(abi::AllocationHandle*, std::size_t, const abi::AllocationProperties*,
                             unsigned long long);
  abi::Result (*cuMemRelease)(abi::AllocationHandle);
  abi::Result (*cuMemExportToShareableHandle)(void*, abi::AllocationHandle, int,
                                              unsigned long long);
  abi::Result (*cuMemImportFromShareableHandle)(abi::AllocationHandle*, void*, int);
  abi::Result (*cuMemAddressReserve)(abi::Address*, std::size_t, std::size_t, abi::Address,
                                     unsigned long long);
  abi::Result (*cuMemAddressFree)(abi::Address, std::size_t);
  abi::Result (*cuMemMap)(abi::Address, std::size_t, std::size_t, abi::AllocationHandle,
                          unsigned long long);
  abi::Result (*cuMemUnmap)(abi::Address, std::size_t);
  abi::Result (*cuMemSetAccess)(abi::Address, std::size_t, const abi::AccessDescription*,
                                std::size_t);
  abi::Result (*cuIpcGetMemHandle)(abi::IpcHandle*, abi::Address);
  abi::Result (*cuIpcOpenMemHandle)(abi::Address*, abi::IpcHandle, unsigned);
  abi::Result (*cuIpcCloseMemHandle)(abi::Address);
  abi::Result (*cuIpcGetEventHandle)(abi::IpcHandle*, abi::EventHandle);
  abi::Result (*cuIpcOpenEventHandle)(abi::EventHandle*, abi::IpcHandle);
  abi::Result (*cuEventCreate)(abi::EventHandle*, unsigned);
  abi::Result (*cuEventDestroy)(abi::EventHandle);
  abi::Result (*cuEventRecord)(abi::EventHandle, abi::Stream);
  abi::Result (*cuEventQuery)(abi::EventHandle);
  abi::Result (*cuEventSynchronize)(abi::EventHandle);
  abi::Result (*cuStreamWaitEvent)(abi::Stream, abi::EventHandle, unsigned);
  abi::Result (*cuStreamIsCapturing)(abi::Stream, int*);
  abi::Result (*cuThreadExchangeStreamCaptureMode)(int*);

  /// The driver, opened and initialised by the first call that finds one. Throws NoDriver,
  /// DriverError.
  static const Driver& get();

  /// "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory".
  std::string describe(abi::Result result) const;

  /// Throws DriverError: "cannot " + attempt() + ": " + what the driver says.
  template <class Attempt>
  void check(abi::Result result, Attempt&& attempt) const {
    if (result != abi::kSuccess) [[unlikely]]
      fail(result, attempt());
  }
  [[noreturn]] void fail(abi::Result result, const std::string& attempt) const;
};

}  // namespace shoal::shm::cuda
