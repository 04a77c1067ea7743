// The part of the CUDA driver's binary interface that is used here: types and values as the CUDA
// Driver API reference gives them, version 11.2 and later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace shoal::shm::cuda::abi {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotReady = 600;
inline constexpr Result kCaptureInvalidated = 901;

using DeviceOrdinal = int;
using Context = struct ContextImpl*;
using Stream = struct StreamImpl*;  // null: the legacy default stream
using EventHandle = struct EventImpl*;
using Address = std::uint64_t;
using AllocationHandle = std::uint64_t;
/// Of memory and of events; the driver's content is opaque.
using IpcHandle = std::array<std::byte, 64>;
using Uuid = std::array<std::uint8_t, 16>;

inline constexpr int kHandleTypePosixFd = 103;           // device attributes
inline constexpr int kPointerDeviceOrdinal = 9;          // pointer attributes
inline constexpr int kPointerLegacyIpcCapable = 10;      //
inline constexpr int kAllocationPinned = 1;              // types of allocations, handles, places
inline constexpr int kHandlePosixFd = 1;                 //
inline constexpr int kLocationDevice = 1;                //
inline constexpr int kAccessReadWrite = 3;               //
inline constexpr int kCaptureRelaxed = 2;                // mode of recording graphs
inline constexpr int kGranularityMinimum = 0;            //
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;  // flags
inline constexpr unsigned kEventDisableTiming = 2;       //
inline constexpr unsigned kEventInterprocess = 4;        //

struct Location {
  int type;
  int id;
};

struct AllocationProperties {
  int type;
  int requested_handle_types;
  Location location;
  void* win32_meta;
  struct {
    std::uint8_t compression;
    std::uint8_t gpu_direct_rdma;
    std::uint16_t usage;
    std::uint8_t reserved[4];
  } flags;
};
static_assert(sizeof(AllocationProperties) == 32);

struct AccessDescription {
  Location location;
  int flags;
};
static_assert(sizeof(AccessDescription) == 12);

}  // namespace shoal::shm::cuda::abi
