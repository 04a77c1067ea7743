// A number that stands for bytes: it finds damage and mix-ups, not malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal::os {

/// FNV-1a of 64 bits (Fowler, Noll, Vo: draft-eastlake-fnv); a value.
class Fnv1a {
 public:
  constexpr void add(std::span<const std::byte> bytes) noexcept {
    for (const std::byte byte : bytes) add(std::to_integer<std::uint64_t>(byte));
  }
  /// A whole number as if it were one byte: quicker than its eight, and another number than theirs.
  constexpr void add(std::uint64_t word) noexcept { value_ = (value_ ^ word) * 0x100000001b3; }
  constexpr std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

constexpr std::uint64_t fnv1a(std::span<const std::byte> bytes) noexcept {
  Fnv1a hash;
  hash.add(bytes);
  return hash.value();
}

}  // namespace shoal::os
