// The element types that cross process boundaries, with NumPy's names and sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shoal::shm {

enum class DType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kF32,
  kF64,
};

/// Bytes of one element.
constexpr std::size_t itemsize(DType dtype) noexcept {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
      return 2;
    case DType::kU32:
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kU64:
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

/// NumPy's name: "bool", "uint8", "float32", …
std::string_view name(DType dtype) noexcept;

/// The inverse of name(). Throws InvalidArgument for a name that is not listed above.
DType dtype_from_name(std::string_view name);

/// The DType of a C++ element type.
template <class T>
constexpr DType dtype_of() noexcept;
template <>
constexpr DType dtype_of<bool>() noexcept {
  return DType::kBool;
}
template <>
constexpr DType dtype_of<std::uint8_t>() noexcept {
  return DType::kU8;
}
template <>
constexpr DType dtype_of<std::int8_t>() noexcept {
  return DType::kI8;
}
template <>
constexpr DType dtype_of<std::uint16_t>() noexcept {
  return DType::kU16;
}
template <>
constexpr DType dtype_of<std::int16_t>() noexcept {
  return DType::kI16;
}
template <>
constexpr DType dtype_of<std::uint32_t>() noexcept {
  return DType::kU32;
}
template <>
constexpr DType dtype_of<std::int32_t>() noexcept {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<std::uint64_t>() noexcept {
  return DType::kU64;
}
template <>
constexpr DType dtype_of<std::int64_t>() noexcept {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<float>() noexcept {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<double>() noexcept {
  return DType::kF64;
}

/// Calls use(T{}) with a value of the C++ type of such elements, a byte for bool; not for
/// float16, which has none.
template <class Use>
constexpr void with_type_of(DType dtype, Use&& use) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return use(std::uint8_t{});
    case DType::kI8:
      return use(std::int8_t{});
    case DType::kU16:
      return use(std::uint16_t{});
    case DType::kI16:
      return use(std::int16_t{});
    case DType::kU32:
      return use(std::uint32_t{});
    case DType::kI32:
      return use(std::int32_t{});
    case DType::kU64:
      return use(std::uint64_t{});
    case DType::kI64:
      return use(std::int64_t{});
    case DType::kF32:
      return use(float{});
    case DType::kF64:
      return use(double{});
    case DType::kF16:
      return;
  }
}

}  // namespace shoal::shm
