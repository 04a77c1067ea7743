// The part of DLPack's C interface that tensors cross by (github.com/dmlc/dlpack, version 1; its unversioned tensors are the
// same since 0.2): memory and a form, handed to torch in a capsule; and torch's table of functions, where it has one.
#pragma once

#include <cstdint>

namespace shoal::python::dlpack {

enum class DeviceType : std::int32_t { kCpu = 1, kCuda = 2 };

struct Device {
  DeviceType type = DeviceType::kCpu;
  std::int32_t index = 0;
  bool operator==(const Device&) const = default;
};

enum class TypeCode : std::uint8_t { kInt, kUInt, kFloat, kOpaque, kBfloat, kComplex, kBool };

struct DataType {
  TypeCode code = TypeCode::kUInt;
  std::uint8_t bits = 8;
  std::uint16_t lanes = 1;
  bool operator==(const DataType&) const = default;
};

struct Tensor {
  void* data = nullptr;
  Device device;
  std::int32_t dims = 0;
  DataType dtype;
  std::int64_t* sizes = nullptr;
  std::int64_t* strides = nullptr;  // in elements
  std::uint64_t byte_offset = 0;
};
static_assert(sizeof(Tensor) == 48);

/// Whoever takes it over calls `deleter`, once, when the memory is not used any more.
struct ManagedTensor {
  Tensor tensor;
  void* context = nullptr;
  void (*deleter)(ManagedTensor* self) = nullptr;
};
static_assert(sizeof(ManagedTensor) == 64);

/// The name of a capsule with a ManagedTensor that nobody has taken over yet.
inline constexpr const char* kCapsule = "dltensor";

/// In the capsule Tensor.__dlpack_c_exchange_api__ (torch 2.10 and newer). Functions return 0, or -1 with Python's error set.
struct ExchangeApi {
  struct {
    std::uint32_t major, minor;
  } version;
  ExchangeApi* previous;
  int (*allocate)(void*, void**, void*, void (*)(void*, const char*, const char*));
  int (*managed_of)(void* object, void** managed);
  int (*object_of)(void* managed, void** object);
  /// Fills in the form, which is borrowed from the object; the stream of a device is not waited for.
  int (*tensor_of)(void* object, Tensor* tensor);
  int (*stream_of)(DeviceType type, std::int32_t index, void** stream);
};
inline constexpr const char* kExchangeApiCapsule = "dlpack_exchange_api";
inline constexpr std::uint32_t kMajorVersion = 1;

}  // namespace shoal::python::dlpack
