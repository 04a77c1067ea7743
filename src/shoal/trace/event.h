// A span as it was recorded, and the three words that it takes in a ring.
//
//   word 0  start_ns
//   word 1  bits 0..39: duration in ns, at most 18 minutes; bits 40..47: the Span; bit 48: times are
//           ticks() and not yet ns
//   word 2  bits 0..31: arg; bits 32..63: the thread
#pragma once

#include <algorithm>
#include <cstdint>

#include "shoal/sync/event_ring.h"
#include "shoal/trace/span.h"

namespace shoal::trace {

/// A value.
struct Event {
  Span span = Span::kNone;
  std::uint32_t thread = 0;  // as the kernel numbers them
  std::uint32_t arg = 0;     // cut to 32 bits
  std::uint64_t start_ns = 0;
  std::uint64_t duration_ns = 0;
  bool in_ticks = false;  // both times, as recorded; never of what a Capture hands out

  static constexpr int kDurationBits = 40;
  static constexpr int kTicksBit = 48;
  static constexpr std::uint64_t kMaxDuration = (std::uint64_t{1} << kDurationBits) - 1;

  sync::EventRing::Record pack() const noexcept {
    return {start_ns,
            std::min(duration_ns, kMaxDuration) |
                std::uint64_t{static_cast<std::uint8_t>(span)} << kDurationBits |
                std::uint64_t{in_ticks} << kTicksBit,
            arg | std::uint64_t{thread} << 32};
  }

  static Event unpack(const sync::EventRing::Record& record) noexcept {
    const auto span = static_cast<std::uint8_t>(record[1] >> kDurationBits);
    return {.span = span < static_cast<std::uint8_t>(Span::kCount) ? static_cast<Span>(span)
                                                                   : Span::kNone,
            .thread = static_cast<std::uint32_t>(record[2] >> 32),
            .arg = static_cast<std::uint32_t>(record[2]),
            .start_ns = record[0],
            .duration_ns = record[1] & kMaxDuration,
            .in_ticks = (record[1] >> kTicksBit & 1) != 0};
  }
};

}  // namespace shoal::trace
