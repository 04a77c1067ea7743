// The clock of all deadlines: monotonic, and the same in every process of the machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace shoal::os {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC

/// The moment at which a wait gives up. Absolute, so that a wait may be resumed without counting
/// twice.
using Deadline = Clock::time_point;

inline constexpr Deadline kNoDeadline = Deadline::max();

/// `timeout` from now; a timeout too long for the clock is no deadline.
inline Deadline deadline_after(std::chrono::nanoseconds timeout) noexcept {
  const Deadline now = Clock::now();
  return timeout >= kNoDeadline - now ? kNoDeadline : now + timeout;
}

/// What is left until `deadline`; never negative.
inline std::chrono::nanoseconds time_left(Deadline deadline) noexcept {
  const Deadline now = Clock::now();
  return deadline > now ? deadline - now : std::chrono::nanoseconds::zero();
}

inline double seconds_between(Clock::time_point from, Clock::time_point to) noexcept {
  return std::chrono::duration<double>(to - from).count();
}

inline double seconds_since(Clock::time_point from) noexcept {
  return seconds_between(from, Clock::now());
}

/// Monotonic nanoseconds; comparable between processes.
inline std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
}

/// The same clock in its steps of a few milliseconds, for a few nanoseconds.
inline std::uint64_t coarse_now_ns() noexcept {
  std::timespec now;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// As the kernel takes it, where absolute CLOCK_MONOTONIC times are wanted.
inline std::timespec to_timespec(std::chrono::nanoseconds value) noexcept {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(value);
  return {static_cast<std::time_t>(seconds.count()), static_cast<long>((value - seconds).count())};
}

}  // namespace shoal::os
