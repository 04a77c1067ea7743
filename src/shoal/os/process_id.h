// A process, named so that no later process can be taken for it, without a descriptor.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace shoal::os {

/// A process id and when that process started, in clock ticks since the machine did; a value.
/// Means the same to all processes of one PID namespace.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_time = 0;
  bool operator==(const ProcessId&) const = default;
};

/// This process. Async-signal-safe.
ProcessId this_process() noexcept;

/// Whether it still runs: false once it has ended, collected or not. Some microseconds.
bool is_running(const ProcessId& process) noexcept;

}  // namespace shoal::os
