// How long a call is willing to wait for workers, and what it looks at meanwhile.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>

#include "shoal/os/clock.h"

namespace shoal::vector {

/// A value.
struct Patience {
  /// Longest wait without a look at deaths and interrupts.
  static constexpr std::chrono::milliseconds kSlice{50};
  /// While a worker is started or replaced.
  static constexpr std::chrono::milliseconds kShortSlice{1};

  os::Deadline deadline = os::kNoDeadline;
  std::function<void()> check;  // may be empty; what it throws ends the wait

  static os::Deadline deadline_of(std::optional<std::chrono::nanoseconds> timeout) {
    return timeout ? os::deadline_after(*timeout) : os::kNoDeadline;
  }
  os::Deadline slice_end() const { return std::min(deadline, os::deadline_after(kSlice)); }
  bool over() const { return os::Clock::now() >= deadline; }
};

}  // namespace shoal::vector
