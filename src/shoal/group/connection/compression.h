// lz4, where this machine has it: the liblz4.so.1 that comes with every distribution, loaded when it is
// first asked for. Nothing is linked, so that Shoal needs no other library.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace shoal::group {

/// Whether there is a liblz4 here.
bool can_compress() noexcept;

/// Makes `out` a block of lz4 that is `bytes`. can_compress() is true, and bytes.size() below 2 GB.
void compress(std::span<const std::byte> bytes, std::vector<std::byte>& out);

/// Fills all of `out` with what `block` is. Throws Error where that is not a block of so many bytes,
/// or there is no liblz4.
void decompress(std::span<const std::byte> block, std::span<std::byte> out);

}  // namespace shoal::group
