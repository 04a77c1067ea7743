// What is called of Python's torch: of any release from 2.6 on, whose binaries are neither linked nor included.
//
// Threads: with the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensors/dlpack.h"

namespace shoal::python {

/// An element type that tensors cross with; its place in kDTypes goes into messages.
struct DType {
  const char* name;  // torch has it under that name, if its release does
  std::uint8_t bytes;
  dlpack::DataType dlpack{dlpack::TypeCode::kOpaque, 0, 0};  // that of every release; else none
  bool complex = false;

  bool is_in_dlpack() const noexcept { return dlpack.lanes != 0; }
};

inline constexpr std::array<DType, 26> kDTypes{{
    {"float32", 4, {dlpack::TypeCode::kFloat, 32, 1}},
    {"float64", 8, {dlpack::TypeCode::kFloat, 64, 1}},
    {"float16", 2, {dlpack::TypeCode::kFloat, 16, 1}},
    {"bfloat16", 2, {dlpack::TypeCode::kBfloat, 16, 1}},
    {"int64", 8, {dlpack::TypeCode::kInt, 64, 1}},
    {"int32", 4, {dlpack::TypeCode::kInt, 32, 1}},
    {"int16", 2, {dlpack::TypeCode::kInt, 16, 1}},
    {"int8", 1, {dlpack::TypeCode::kInt, 8, 1}},
    {"uint8", 1, {dlpack::TypeCode::kUInt, 8, 1}},
    {"bool", 1, {dlpack::TypeCode::kBool, 8, 1}},
    {"complex64", 8, {dlpack::TypeCode::kComplex, 64, 1}, true},
    {"complex128", 16, {dlpack::TypeCode::kComplex, 128, 1}, true},
    {"complex32", 4, {dlpack::TypeCode::kOpaque, 0, 0}, true},
    {"uint16", 2},
    {"uint32", 4},
    {"uint64", 8},
    {"float8_e4m3fn", 1},
    {"float8_e5m2", 1},
    {"float8_e4m3fnuz", 1},
    {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},
    {"float4_e2m1fn_x2", 1},
    {"bits8", 1},
    {"bits16", 2},
    {"bits1x8", 1},
    {"bits4x2", 1},
}};

inline constexpr int kUInt8 = 8;
static_assert(std::string_view(kDTypes[kUInt8].name) == "uint8");

/// Found once, when a tensor is first sent or received; for ever.
class TorchApi {
 public:
  /// Throws ImportError where there is no torch, AttributeError where it lacks what is needed.
  static const TorchApi& here();

  /// Of no subclass but Parameter.
  bool is_tensor(nanobind::handle object) const;
  bool is_parameter(nanobind::handle object) const { return object.type().is(parameter_); }
  bool is_storage(nanobind::handle object) const;

  /// -1 for one that is not in kDTypes.
  int dtype_of(nanobind::handle dtype) const noexcept;
  static int dtype_of(const dlpack::DataType& dtype) noexcept;
  /// Whether this release has it.
  bool has_dtype(int dtype) const noexcept { return dtypes_[static_cast<std::size_t>(dtype)]; }

  /// A tensor over memory that torch gives back by the deleter, on any thread, with or without the
  /// GIL. `managed` is taken over, also where this throws; its sizes and strides are not read
  /// later. The tensor's storage ends with its last element, and has a fixed size.
  nanobind::object tensor_over(dlpack::ManagedTensor& managed) const;

  /// A tensor on a storage, which no other object is a view of. The form must lie within it.
  nanobind::object tensor_on(nanobind::handle storage, dlpack::Device device, int dtype,
                             std::int64_t offset, std::span<const std::int64_t> sizes,
                             std::span<const std::int64_t> strides) const;

  /// Sets a tensor on a storage of its device, as tensor_on().
  static nanobind::object set(nanobind::handle tensor, nanobind::handle storage,
                              std::int64_t offset, std::span<const std::int64_t> sizes,
                              std::span<const std::int64_t> strides);

  /// Another tensor that looks at the same elements, which no other object is a view of.
  static nanobind::object beside(nanobind::handle tensor);

  /// The tensor of a weak reference (PyWeakref); an invalid object where it is gone.
  static nanobind::object lock_tensor(nanobind::handle reference);

  static bool is_of_inference_mode(nanobind::handle tensor);

  /// Says of a tensor that was just made that its elements are to be read conjugate, negative.
  void set_bits(nanobind::handle tensor, bool conjugate, bool negative) const;

  nanobind::object parameter(nanobind::handle tensor, bool requires_grad) const;

  /// A weak reference on a storage, which is the caller's.
  static std::uintptr_t weak(nanobind::handle storage);
  /// The storage, or None.
  nanobind::object lock(std::uintptr_t weak) const;
  void free(std::uintptr_t weak) const;

  static nanobind::object storage_of(nanobind::handle tensor);
  static std::uint64_t bytes_of(nanobind::handle storage);
  /// What is copied on write becomes the storage's own.
  static std::uintptr_t address_of(nanobind::handle storage);

  /// A storage without bytes, of torch's own allocator.
  nanobind::object empty_storage(dlpack::Device device) const;

  nanobind::handle storage_type() const noexcept { return storage_; }
  /// The layout of dense tensors.
  nanobind::handle strided() const noexcept { return strided_; }
  /// Whether it was built with CUDA.
  bool has_cuda() const noexcept { return has_cuda_; }
  /// nullptr before torch 2.10.
  const dlpack::ExchangeApi* exchange_api() const noexcept { return exchange_api_; }

 private:
  using Templates = std::array<PyObject*, kDTypes.size()>;

  TorchApi();
  Templates templates_on(dlpack::Device device) const;
  nanobind::handle template_of(dlpack::Device device, int dtype) const;

  nanobind::handle tensor_, parameter_, storage_, strided_;
  nanobind::handle from_dlpack_, set_metadata_, new_with_weak_ptr_, free_weak_ref_;
  bool has_cuda_ = false;
  const dlpack::ExchangeApi* exchange_api_ = nullptr;
  std::array<PyObject*, kDTypes.size()> dtypes_{};
  Templates cpu_{};                        // tensors without elements, of each dtype
  mutable std::vector<Templates> cuda_{};  // by device; none yet where the first is nullptr
};

}  // namespace shoal::python
