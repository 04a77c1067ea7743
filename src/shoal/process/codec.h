// Writes and reads the fields of a message, little-endian and of fixed width; texts and bytes
// follow a u32 length.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shoal/os/error.h"

namespace shoal::process {

static_assert(std::endian::native == std::endian::little,
              "messages are written as they lie in memory");

/// Appends fields to a message; a value.
/// Threads: one at a time.
/// Processes, death: it lies in one process, and ends with it.
class ByteWriter {
 public:
  template <class T>
    requires std::is_integral_v<T>
  void number(T value) {
    append(&value, sizeof value);
  }
  void bytes(std::span<const std::byte> value) {
    number(static_cast<std::uint32_t>(value.size()));
    append(value.data(), value.size());
  }
  void text(std::string_view value) { bytes(std::as_bytes(std::span(value))); }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(const void* data, std::size_t count);

  std::vector<std::byte> bytes_;
};

/// Takes fields out of a message in the order in which they were written; a value, which borrows
/// the message. Throws Error when the message ends too soon.
/// Threads: one at a time.
/// Processes, death: it lies in one process, and ends with it.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> message) : left_(message) {}

  template <class T>
    requires std::is_integral_v<T>
  T number() {
    T value;
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  std::vector<std::byte> bytes() {
    const auto field = next(number<std::uint32_t>());
    return {field.begin(), field.end()};
  }
  std::string text() {
    const auto field = next(number<std::uint32_t>());
    return {reinterpret_cast<const char*>(field.data()), field.size()};
  }
  std::size_t left() const noexcept { return left_.size(); }

 private:
  std::span<const std::byte> next(std::size_t count) {
    if (count > left_.size()) {
      throw Error(
          "a message from another process ends in the middle of a field: the two run different "
          "versions of Shoal");
    }
    const auto field = left_.first(count);
    left_ = left_.subspan(count);
    return field;
  }

  std::span<const std::byte> left_;
};

}  // namespace shoal::process
