// A short form for small plain objects: what needs neither pickle nor a look at anything else.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal::python {

/// None, bool, int of 64 bits, float, str and bytes, and tuples, lists and dicts of them, nested a
/// few times: all of exactly these types, as they are built in. Threads: with the GIL.
class PlainCodec {
 public:
  static constexpr std::size_t kMaxBytes = 32768;

  /// False when `object` has no short form: it is too large, of another type, or names a list or
  /// dict twice, which pickle would keep one.
  bool encode(nanobind::handle object) noexcept { return write(object, 0); }
  std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), used_}; }

  /// The object that `bytes` of an encode() stand for. Throws ValueError for other bytes.
  static nanobind::object decode(std::span<const std::byte> bytes);

 private:
  static constexpr int kMaxDepth = 8;
  static constexpr std::size_t kMaxContainers = 16;

  bool write(nanobind::handle object, int depth) noexcept;
  bool write_items(nanobind::handle object, int depth) noexcept;
  bool put(char kind, const void* data, std::size_t bytes) noexcept;
  bool put_int(std::int64_t value) noexcept;
  bool put_sized(char kind, const char* data, std::size_t bytes) noexcept;
  bool first_time(PyObject* container) noexcept;

  std::array<PyObject*, kMaxContainers> containers_;
  std::size_t seen_ = 0;
  std::size_t used_ = 0;
  std::array<std::byte, kMaxBytes> bytes_;
};

}  // namespace shoal::python
