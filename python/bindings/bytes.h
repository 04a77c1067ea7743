// Bytes of C++ and `bytes` of Python; texts of other processes.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
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

/// Bytes that are no UTF-8, as a path or another process may have them, become \\xNN.
inline nanobind::object foreign_text(std::string_view text) {
  PyObject* made =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  if (made == nullptr) throw nanobind::python_error();
  return nanobind::steal(made);
}
inline nanobind::typed<nanobind::list, nanobind::str> foreign_texts(
    const std::vector<std::string>& lines) {
  nanobind::typed<nanobind::list, nanobind::str> texts;
  for (const std::string& line : lines) texts.append(foreign_text(line));
  return texts;
}

}  // namespace shoal::python
