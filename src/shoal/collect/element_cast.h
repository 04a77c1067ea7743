// Reading elements of any type as another, without a branch an element.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shoal/os/error.h"
#include "shoal/shm/dtype.h"

namespace shoal::collect {

/// Calls `use` with a pointer of the element type that `data` holds. Half precision has no C++ type
/// here and is refused.
template <class Use>
void visit_elements(shm::DType dtype, const std::byte* data, Use&& use) {
  using shm::DType;
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return use(reinterpret_cast<const std::uint8_t*>(data));
    case DType::kI8:
      return use(reinterpret_cast<const std::int8_t*>(data));
    case DType::kU16:
      return use(reinterpret_cast<const std::uint16_t*>(data));
    case DType::kI16:
      return use(reinterpret_cast<const std::int16_t*>(data));
    case DType::kU32:
      return use(reinterpret_cast<const std::uint32_t*>(data));
    case DType::kI32:
      return use(reinterpret_cast<const std::int32_t*>(data));
    case DType::kU64:
      return use(reinterpret_cast<const std::uint64_t*>(data));
    case DType::kI64:
      return use(reinterpret_cast<const std::int64_t*>(data));
    case DType::kF32:
      return use(reinterpret_cast<const float*>(data));
    case DType::kF64:
      return use(reinterpret_cast<const double*>(data));
    case DType::kF16:
      break;
  }
  throw InvalidArgument("arrays of float16 are not supported here; make the space float32");
}

/// The same for writing.
template <class Use>
void visit_elements(shm::DType dtype, std::byte* data, Use&& use) {
  visit_elements(dtype, static_cast<const std::byte*>(data), [&](const auto* elements) {
    use(const_cast<std::remove_const_t<std::remove_pointer_t<decltype(elements)>>*>(elements));
  });
}

}  // namespace shoal::collect
