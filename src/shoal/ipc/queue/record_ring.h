// Records of any size in a ring of bytes; see queue_layout.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shoal/ipc/queue/queue_layout.h"

namespace shoal::ipc {

/// A view of the memory of a ring; a value.
/// Threads, processes: one at a time, under the queue's lock.
/// Death: what Queue says; a record counts once the queue's `put` names the position behind it.
class RecordRing {
 public:
  using Header = layout::RecordHeader;

  RecordRing(std::byte* data, std::uint32_t log) noexcept : data_(data), log_(log) {}

  static constexpr std::size_t bytes_of(std::uint32_t log) noexcept {
    return std::size_t{layout::kUnit} << log;
  }
  /// Units of a record with so many bytes in it.
  static constexpr std::uint32_t units_of(std::size_t inline_bytes) noexcept {
    return static_cast<std::uint32_t>(1 + (inline_bytes + layout::kUnit - 1) / layout::kUnit);
  }

  std::uint32_t log() const noexcept { return log_; }
  std::uint32_t capacity() const noexcept { return std::uint32_t{1} << log_; }

  /// Where a record of `units` that comes after `end` starts: at `end`, or behind a filler.
  std::uint32_t place(std::uint32_t end, std::uint32_t units) const noexcept {
    const std::uint32_t left = capacity() - (end & (capacity() - 1));
    return units <= left ? end : end + left;
  }

  /// Whether it fits while the oldest record starts at `begin`.
  bool fits(std::uint32_t begin, std::uint32_t end, std::uint32_t units) const noexcept {
    return units <= capacity() && place(end, units) + units - begin <= capacity();
  }

  /// Writes a record that fits, and the filler before it; returns the position behind it.
  std::uint32_t write(std::uint32_t end, const Header& header,
                      std::span<const std::byte> bytes) const noexcept;

  /// The position of the oldest record, when there is one from `begin` on.
  std::uint32_t skip_filler(std::uint32_t begin) const noexcept;

  const Header& header(std::uint32_t position) const noexcept {
    return *reinterpret_cast<const Header*>(at(position));
  }
  const std::byte* payload(std::uint32_t position) const noexcept {
    return at(position) + layout::kUnit;
  }
  /// Whether a message of so many bytes can lie there.
  bool has_room(std::uint32_t position, std::size_t bytes) const noexcept {
    return bytes <= bytes_of(log_) && units_of(bytes) <= capacity() - (position & (capacity() - 1));
  }
  /// The position behind that record or filler.
  std::uint32_t next(std::uint32_t position) const noexcept;

  /// Copies what lies in [begin, end) to the same positions of a larger ring.
  void copy_to(const RecordRing& larger, std::uint32_t begin, std::uint32_t end) const noexcept;

 private:
  std::byte* at(std::uint32_t position) const noexcept {
    return data_ + std::size_t{position & (capacity() - 1)} * layout::kUnit;
  }

  std::byte* data_;
  std::uint32_t log_;
};

}  // namespace shoal::ipc
