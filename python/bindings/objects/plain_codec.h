// A short form for small plain objects, which needs no pickle.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal::python {

/// None, bool, int of 64 bits, float, str, bytes and what has a Packer, and tuples, lists and dicts
/// of them, nested a few times: all of exactly these types.
/// Threads: with the GIL, which a packer may give back.
class PlainCodec {
 public:
  static constexpr std::size_t kMaxBytes = 32768;

  /// False when `object` has no short form: it is too large, of another type, or names a list, dict
  /// or packed object twice, which pickle would keep one. Raises what a packer raises.
  bool encode(nanobind::handle object) {
    root_ = object;
    return write(object, 0);
  }
  std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), used_}; }
  /// The blocks that the bytes name: a list, or no object where there is none.
  const nanobind::object& blocks() const noexcept { return blocks_; }

  /// The object that `bytes` of an encode() stand for. Throws ValueError for other bytes.
  static nanobind::object decode(std::span<const std::byte> bytes);

 private:
  static constexpr int kMaxDepth = 8;
  static constexpr std::size_t kMaxShared = 64;

  bool write(nanobind::handle object, int depth);
  bool write_items(nanobind::handle object, int depth);
  bool write_packed(nanobind::handle object);
  bool put(char kind, const void* data, std::size_t bytes) noexcept;
  bool put_int(std::int64_t value) noexcept;
  bool put_sized(char kind, const char* data, std::size_t bytes) noexcept;
  bool put_sized(const char* data, std::size_t bytes) noexcept;
  bool first_time(PyObject* object) noexcept;

  nanobind::handle root_;
  nanobind::object blocks_;
  std::array<PyObject*, kMaxShared> shared_;  // that would be one object again, were they met twice
  std::size_t seen_ = 0;
  std::size_t used_ = 0;
  std::array<std::byte, kMaxBytes> bytes_;
};

}  // namespace shoal::python
