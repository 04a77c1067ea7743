// Shapes and borrowed views of C-contiguous arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/shm/dtype.h"

namespace shoal::shm {

/// Element type and shape of an array; a value. An empty shape is a scalar.
struct TensorSpec {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;

  std::int64_t numel() const noexcept {
    std::int64_t n = 1;
    for (auto d : shape) n *= d;
    return n;
  }
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(numel()) * itemsize(dtype); }
  bool operator==(const TensorSpec&) const = default;
};

/// Borrows a C-contiguous array whose first dimension is the batch: [rows, *row shape].
struct TensorView {
  std::byte* data = nullptr;
  std::int64_t rows = 0;
  TensorSpec row;  // one row, without the batch dimension

  std::size_t row_bytes() const noexcept { return row.bytes(); }
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(rows) * row.bytes(); }
  std::byte* row_data(std::int64_t i) const noexcept { return data + i * row.bytes(); }

  /// All elements as T. Throws InvalidArgument when T is not the element type.
  template <class T>
  std::span<T> as() const {
    if (dtype_of<T>() != row.dtype) throw InvalidArgument("TensorView::as: wrong element type");
    return {reinterpret_cast<T*>(data), static_cast<std::size_t>(rows * row.numel())};
  }
};

}  // namespace shoal::shm
