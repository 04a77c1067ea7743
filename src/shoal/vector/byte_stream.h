// Numbers and strings one after the other in bytes: what messages are made of.
//
// Little-endian, without padding; a string or a list is its length as u64 and its elements.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shoal/os/error.h"

namespace shoal::vector {

static_assert(std::endian::native == std::endian::little, "the messages are little-endian");

/// Appends values; take() gives the bytes away.
class ByteWriter {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  void put_list(std::span<const T> values) {
    put(static_cast<std::uint64_t>(values.size()));
    append(std::as_bytes(values));
  }
  void put_text(std::string_view text) { put_list(std::span(text.data(), text.size())); }
  void put_bytes(std::span<const std::byte> bytes) {
    put(static_cast<std::uint64_t>(bytes.size()));
    append(bytes);
  }
  /// Without a length: what is left of the message.
  void append(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads them back in the same order; borrows the bytes. Throws Error when they end too early.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  T get() {
    T value;
    std::memcpy(&value, next(sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  std::vector<T> get_list() {
    const auto count = get<std::uint64_t>();
    if (count > left_.size() / sizeof(T)) too_short();
    std::vector<T> values(count);
    const std::span<const std::byte> bytes = next(count * sizeof(T));
    if (count != 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::string get_text() {
    const std::span<const std::byte> bytes = get_bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> get_bytes() { return next(get<std::uint64_t>()); }
  std::span<const std::byte> rest() { return next(left_.size()); }

 private:
  std::span<const std::byte> next(std::size_t count) {
    if (count > left_.size()) too_short();
    const std::span<const std::byte> bytes = left_.first(count);
    left_ = left_.subspan(count);
    return bytes;
  }
  [[noreturn]] static void too_short() { throw Error("a message of a worker ends too early"); }

  std::span<const std::byte> left_;
};

}  // namespace shoal::vector
