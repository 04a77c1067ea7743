// The user's torch, opened with dlopen: as the tensors that a package of AOTInductor is given and
// gives back.
//
// Threads: any.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/torch_abi.h"

namespace shoal::python {

class Torch;

/// An array of NumPy's, C-contiguous, of a dtype that torch has; a value, which keeps the array.
struct Array {
  nanobind::object object;
  std::byte* data = nullptr;
  std::span<const std::int64_t> sizes;
  std::size_t num_bytes = 0;
  std::int32_t dtype = 0;  // torch's number
};

/// "cpu", or "cuda" and its number.
struct DeviceOf {
  std::int32_t type = 0;
  std::int32_t index = 0;
};

/// A tensor on torch's heap; a resource.
class Tensor {
 public:
  using Delete = abi::Status (*)(abi::Tensor);

  Tensor(abi::Tensor handle, Delete deleted) noexcept : handle_(handle), delete_(deleted) {}
  ~Tensor() {
    if (handle_ != nullptr) delete_(handle_);
  }
  Tensor(Tensor&& other) noexcept : handle_(other.release()), delete_(other.delete_) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(delete_, other.delete_);
    return *this;
  }

  abi::Tensor get() const noexcept { return handle_; }
  abi::Tensor release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  abi::Tensor handle_;
  Delete delete_;
};

/// Where the bytes of a tensor on the CPU lie.
struct Bytes {
  const std::byte* first = nullptr;
  std::size_t size = 0;

  bool overlaps(const Bytes& other) const noexcept {
    return first < other.first + other.size && other.first < first + size;
  }
};

/// What torch says of a failure, without the stack that it appends where one crosses its C interface.
std::string without_stack(std::string text);

/// Failures are std::runtime_error with torch's own text, where it hands it out (from 2.13 on).
class Torch {
 public:
  /// `folder` has libtorch_cpu.so; `cuda`: and what it has for CUDA devices. They stay open until the
  /// process ends. Throws std::runtime_error where they cannot be opened.
  Torch(const std::string& folder, bool cuda);

  std::int32_t cuda() const noexcept { return cuda_; }

  /// Owns what a call of the C interface has handed out.
  Tensor own(abi::Tensor handle) const noexcept {
    return {handle, call_.aoti_torch_delete_tensor_object};
  }

  /// `object` itself, or a copy where its elements lie otherwise. Throws std::runtime_error for
  /// dtypes that torch lacks. Needs the GIL.
  Array array_from(nanobind::handle object) const;
  /// Over the array's memory, which the caller keeps.
  Tensor over(const Array& array) const;
  /// A copy on a device.
  Tensor to(const Tensor& tensor, DeviceOf device) const;
  /// A copy of `from` with the dtype, sizes, strides and device of `like`.
  Tensor copied_as(abi::Tensor like, const Tensor& from) const;

  /// On the CPU, contiguous, of a dtype that NumPy has (what it lacks is float32), and of memory that
  /// is none of `taken`: a copy, where it is not so already.
  Tensor for_numpy(Tensor tensor, std::span<const Bytes> taken) const;
  Tensor for_numpy(abi::Tensor borrowed) const;
  /// The array of what for_numpy() made, which it keeps. Needs the GIL.
  nanobind::object array_of(Tensor tensor) const;

  Bytes bytes_of(abi::Tensor tensor) const;

  /// A package compares the sizes that it knows and trusts the number of dimensions: of a tensor
  /// that has fewer it would read what stood there before. Now ones stand there.
  void fill_missing_dimensions(const Tensor& tensor) const;
  /// Whether it can: torch keeps the first sizes of a tensor in the tensor itself.
  bool fills_missing_dimensions() const;

 private:
  struct Dtype {
    std::int32_t number;  // torch's
    int type_num;         // NumPy's, with its kind and the bytes of an element
    char kind;
    int size;
  };
  struct Layout {
    std::span<const std::int64_t> sizes, strides;
    std::int32_t dtype = 0;
    DeviceOf device;
  };

  void find_dtypes(void* library);
  void check(abi::Status status, const char* what) const;
  Layout layout_of(abi::Tensor tensor) const;
  const Dtype* numpy_dtype(std::int32_t number) const noexcept;
  Tensor empty(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
               std::int32_t dtype, DeviceOf device) const;
  Tensor contiguous_copy(abi::Tensor tensor, const Layout& layout) const;

  abi::TorchFunctions call_{};
  std::int32_t cpu_ = 0, cuda_ = 0, float32_ = 0, complex64_ = 0, complex32_ = 0;
  std::vector<Dtype> dtypes_;  // that NumPy has, too
};

}  // namespace shoal::python
