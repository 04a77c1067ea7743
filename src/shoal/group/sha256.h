// SHA-256 (FIPS 180-4), and the keyed hash that is made of it (HMAC, RFC 2104).
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace shoal::group {

using Digest = std::array<std::byte, 32>;

Digest sha256(std::span<const std::byte> message);

/// Who does not know `key` can neither make it nor learn the key from it.
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

/// Takes as long wherever they differ.
bool same_digest(const Digest& a, const Digest& b) noexcept;

}  // namespace shoal::group
