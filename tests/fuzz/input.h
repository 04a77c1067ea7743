// What a fuzz target makes of its input, and what it starts from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shoal/os/error.h"

namespace shoal::fuzz {

using Bytes = std::vector<std::byte>;

/// Inputs that the project's own writers make, which are of today's formats. Every target defines it.
std::vector<Bytes> seeds();

/// Takes an input apart from its front; a value, which borrows the input.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) noexcept
      : left_(reinterpret_cast<const std::byte*>(data), size) {}

  bool empty() const noexcept { return left_.empty(); }

  /// Zeros stand for what the input does not have any more.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  T take() noexcept {
    T value{};
    const auto bytes = take_bytes(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  /// A number below `end`.
  std::size_t below(std::size_t end) noexcept { return take<std::uint16_t>() % end; }
  /// At most so many.
  std::span<const std::byte> take_bytes(std::size_t most) noexcept {
    const auto taken = left_.first(std::min(most, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  /// What a u16 before them counts.
  std::span<const std::byte> take_part() noexcept { return take_bytes(take<std::uint16_t>()); }
  std::span<const std::byte> rest() noexcept { return take_bytes(left_.size()); }
  std::string rest_text() {
    const auto bytes = rest();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> left_;
};

/// Builds what Input takes apart; a value.
class Output {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  Output& put(const T& value) {
    return put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  Output& put_bytes(std::span<const std::byte> bytes) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    if (!bytes.empty()) std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
    return *this;
  }
  Output& put_part(std::span<const std::byte> bytes) {
    return put(static_cast<std::uint16_t>(bytes.size())).put_bytes(bytes);
  }
  Output& put_text(std::string_view text) { return put_bytes(std::as_bytes(std::span(text))); }

  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// What LLVMFuzzerTestOneInput() returns: an input may be refused by an Error, and by nothing else.
template <class Read>
int refused_at_most(Read&& read) {
  try {
    read();
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
