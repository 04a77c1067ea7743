// How much memory processes use and keep, and whether the kernel has ended any for want of it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shoal::os {

struct MemoryUse {
  std::uint64_t resident_bytes = 0;
  std::uint64_t own_bytes = 0;      // resident, without files and shared memory
  std::uint64_t virtual_bytes = 0;  // of address space
};

/// Of a process; zeros when it is gone or not visible. A few microseconds.
MemoryUse memory_use(pid_t pid) noexcept;

/// From here on what this process frees stays its own, for its next allocations of up to 32 MiB
/// each: the C library gives large ones back to the kernel at once, and each of their pages is a
/// fault when they are made again. Without effect where the C library is not glibc.
void keep_freed_memory() noexcept;

/// Watches the kernel's counts of processes that it killed for want of memory: those of the control
/// groups above this process and that of the machine. A value.
class OomWatch {
 public:
  /// Looks at the counts for the first time. `root` stands for "/" in tests.
  explicit OomWatch(std::filesystem::path root = "/");

  /// What speaks for such a kill since the last look, or since the construction; nothing when
  /// nothing does.
  std::optional<std::string> evidence();

 private:
  struct Count {
    std::string what;  // "oom_kill of /sys/fs/cgroup/…/memory.events"
    std::filesystem::path file;
    long long value = 0;
  };
  std::vector<Count> counts_;
};

}  // namespace shoal::os
