// Bytes of C++ and `bytes` of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>
#include <vector>

namespace shoal::python {

/// Those of a `bytes` object, valid while it lives.
inline std::span<const std::byte> view(const nanobind::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

/// A copy of those of a `bytes` object. Throws std::bad_cast for any other.
inline std::vector<std::byte> to_vector(nanobind::handle bytes_object) {
  const auto bytes = nanobind::cast<nanobind::bytes>(bytes_object);
  const auto all = view(bytes);
  return {all.begin(), all.end()};
}

inline nanobind::bytes to_bytes(std::span<const std::byte> bytes) {
  return nanobind::bytes(bytes.data(), bytes.size());
}

}  // namespace shoal::python
