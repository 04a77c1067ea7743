// A process, named so that no later process can be taken for it, without a descriptor.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace shoal::os {

/// A process id and what tells that process from others that have the id; a value. Means the same
/// to all processes of one PID namespace. What is 0 is not known, and not compared.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // in clock ticks since the machine's start
  std::uint64_t image = 0;       // changes when it executes another program
  bool operator==(const ProcessId&) const = default;
};

/// This process. Async-signal-safe.
ProcessId this_process() noexcept;

/// Whether it still runs: false once it has ended, collected or not, or has executed another
/// program. Some microseconds.
bool is_running(const ProcessId& process) noexcept;

}  // namespace shoal::os
