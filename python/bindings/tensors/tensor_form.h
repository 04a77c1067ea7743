// How a tensor looks at its storage.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensors/torch_api.h"

namespace shoal::python {

inline constexpr std::size_t kMaxDims = 64;

/// A value. What `dims` does not reach of the arrays is not initialised.
struct TensorForm {
  dlpack::Device device;
  std::uint8_t dtype = 0;  // in kDTypes
  std::uint8_t dims = 0;
  std::int64_t offset = 0;  // in elements, of the first one in the storage
  std::array<std::int64_t, kMaxDims> sizes;
  std::array<std::int64_t, kMaxDims> strides;  // in elements

  // NOLINTNEXTLINE(*-member-init): a kilobyte, of which mostly some words are used
  TensorForm() noexcept {}

  std::span<const std::int64_t> all_sizes() const noexcept { return {sizes.data(), dims}; }
  std::span<const std::int64_t> all_strides() const noexcept { return {strides.data(), dims}; }
  std::uint64_t item_bytes() const noexcept { return kDTypes[dtype].bytes; }

  /// Whether both have the same elements at the same address, if they have the same offset.
  bool has_sizes_of(const TensorForm& other) const noexcept;

  /// Bytes from the start of the storage to the end of its last element; 0 without elements. False
  /// where no storage is so large, or a part is negative.
  bool reach(std::uint64_t& bytes) const noexcept;
};

/// All of the form but the offset; the rest as read_form().
bool read_sizes(nanobind::handle object, TensorForm& form, std::byte*& first);

/// Of a tensor on the CPU or a CUDA device; `first` is where its first element lies, nullptr
/// without elements. False for what is more than a dense view of a storage: another layout, nested,
/// quantized, without memory. `object` is a Tensor or a Parameter, of no other type.
bool read_form(nanobind::handle object, TensorForm& form, std::byte*& first);

}  // namespace shoal::python
