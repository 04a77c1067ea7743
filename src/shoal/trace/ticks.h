// Spans that are so short and many that the clock would count: their times are the processor's
// counter, a third of the clock's price, and who listens turns them into nanoseconds.
#pragma once

#include <cstdint>

#include "shoal/trace/recorder.h"

namespace shoal::trace {

/// The counter of the processor, where it runs evenly and on all CPUs alike; else os::now_ns().
std::uint64_t ticks() noexcept;

/// As record(), of ticks().
void record_ticks(Span span, std::uint64_t start, std::uint64_t end, std::uint64_t arg) noexcept;

/// As Scope.
class TickScope {
 public:
  /// `worth`: false where it would take less than the span itself.
  explicit TickScope(Span span, std::uint64_t arg = 0, bool worth = true) noexcept
      : arg_(arg), start_(worth && is_on() ? ticks() : 0), span_(span) {}
  ~TickScope() {
    if (start_ != 0) [[unlikely]]
      record_ticks(span_, start_, ticks(), arg_);
  }
  TickScope(const TickScope&) = delete;
  TickScope& operator=(const TickScope&) = delete;

 private:
  const std::uint64_t arg_;
  const std::uint64_t start_;
  const Span span_;
};

}  // namespace shoal::trace
