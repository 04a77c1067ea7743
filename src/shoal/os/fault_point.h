// Named places in the code where a test can have a process killed or stopped.
//
//     SHOAL_FAULT_POINT("heap.allocate.reserved");
//
// Costs a load and a branch that is never taken, until arm_fault_point() or the variable
// SHOAL_FAULT_POINT=name:n (read when the process starts) names it: the n-th pass (from 1) through
// that name then ends the process by SIGKILL, as kill -9 would.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <string>

namespace shoal::os {

/// Kills this process when it passes `name` for the n-th time from now on, or stops it there until
/// somebody continues it; "*" counts the passes through every name. "" disarms.
///
/// Args: signal: SIGKILL or SIGSTOP.
/// Threads: call while no other thread is at a fault point.
/// Fork: the child has the armed point and its count so far.
void arm_fault_point(const std::string& name, std::uint64_t nth = 1, int signal = SIGKILL);

/// Passes so far through what is armed.
std::uint64_t fault_point_passes() noexcept;

namespace internal {
extern std::atomic<bool> fault_points_armed;
void pass_fault_point(const char* name) noexcept;
}  // namespace internal

}  // namespace shoal::os

#define SHOAL_FAULT_POINT(name)                                                                 \
  do {                                                                                          \
    if (::shoal::os::internal::fault_points_armed.load(std::memory_order_relaxed)) [[unlikely]] \
      ::shoal::os::internal::pass_fault_point(name);                                            \
  } while (false)
