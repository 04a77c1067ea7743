// Counters in shared memory that one thread of one process writes and any may read.
#pragma once

#include <atomic>
#include <cstdint>

namespace shoal::vector {

/// Adds to a counter that only the caller writes: no locked instruction.
inline void add_alone(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace shoal::vector
