// Hands out places in a segment, one after the other.
#pragma once

#include <cstddef>
#include <type_traits>

namespace shoal::shm {

/// What two processes must not share when both write: two lines, since x86 fetches lines in pairs.
inline constexpr std::size_t kCacheLineBytes = 128;

/// Computes aligned, disjoint offsets; a value. The same calls in the same order give the same
/// offsets in every process.
class LayoutBuilder {
 public:
  /// Reserves `bytes` at a multiple of `alignment` and returns the offset. Throws InvalidArgument
  /// when `alignment` is no power of two or the segment would be larger than the address space.
  std::size_t add_bytes(std::size_t bytes, std::size_t alignment = kCacheLineBytes);

  /// Reserves `count` objects of T.
  template <class T>
  std::size_t add(std::size_t count = 1, std::size_t alignment = kCacheLineBytes) {
    static_assert(std::is_standard_layout_v<T> && std::is_trivially_destructible_v<T>,
                  "shared memory holds plain data only");
    return add_array(count, sizeof(T), alignment < alignof(T) ? alignof(T) : alignment);
  }

  /// Bytes reserved up to now, rounded up to `alignment`.
  std::size_t bytes(std::size_t alignment = kCacheLineBytes) const;

 private:
  std::size_t add_array(std::size_t count, std::size_t item_bytes, std::size_t alignment);

  std::size_t end_ = 0;
};

}  // namespace shoal::shm
