// What a segment begins with: eight letters that say what it holds, and the version of its layout. A
// Header is plain data with `char magic[8]` and `std::uint32_t version`, then what the layout has.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "shoal/os/error.h"
#include "shoal/shm/arena.h"

namespace shoal::shm {

/// A copy of the header that `bytes` begin with, which nobody changes once it was checked. Nothing
/// where they hold something else.
template <class Header>
std::optional<Header> header_in(std::span<const std::byte> bytes, const char (&magic)[8]) noexcept {
  static_assert(std::is_trivially_copyable_v<Header>);
  Header header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0) return std::nullopt;
  return header;
}

/// The same of an arena that is `what`, for the text. Throws Error where it holds something else, or
/// has another version.
template <class Header>
Header header_of(const Arena& arena, const char (&magic)[8], std::uint32_t version,
                 std::string_view what) {
  const auto header = header_in<Header>({arena.base(), arena.size()}, magic);
  if (!header)
    throw Error(
        fmt::format("attach {}: the arena \"{}\" holds something else", what, arena.name()));
  if (header->version != version)
    throw Error(fmt::format(
        "attach {}: its layout has version {}, this Shoal reads version {}; the processes "
        "must be of the same Shoal",
        what, header->version, version));
  return *header;
}

}  // namespace shoal::shm
