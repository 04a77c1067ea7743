#include "shoal/shm/layout.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <limits>

#include "shoal/os/error.h"

namespace shoal::shm {
namespace {

// Offsets are also ptrdiff_t.
constexpr std::size_t kMaxBytes =
    static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());

std::size_t align_up(std::size_t offset, std::size_t alignment) {
  if (!std::has_single_bit(alignment)) {
    throw InvalidArgument(fmt::format("an alignment of {} bytes is no power of two", alignment));
  }
  if (alignment > kMaxBytes || offset > kMaxBytes - (alignment - 1)) {
    throw InvalidArgument("a segment larger than the address space");
  }
  return (offset + alignment - 1) & ~(alignment - 1);
}

}  // namespace

std::size_t LayoutBuilder::add_bytes(std::size_t bytes, std::size_t alignment) {
  const std::size_t offset = align_up(end_, alignment);
  if (bytes > kMaxBytes - offset) {
    throw InvalidArgument(fmt::format(
        "{} bytes at offset {}: a segment larger than the address space", bytes, offset));
  }
  end_ = offset + bytes;
  return offset;
}

std::size_t LayoutBuilder::add_array(std::size_t count, std::size_t item_bytes,
                                     std::size_t alignment) {
  if (count > kMaxBytes / item_bytes) {
    throw InvalidArgument(fmt::format(
        "{} objects of {} bytes: a segment larger than the address space", count, item_bytes));
  }
  return add_bytes(count * item_bytes, alignment);
}

std::size_t LayoutBuilder::bytes(std::size_t alignment) const { return align_up(end_, alignment); }

}  // namespace shoal::shm
