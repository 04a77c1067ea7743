// How much memory processes use and keep, and whether the kernel has ended any for want of it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

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

/// Watches the kernel's count of the processes of this process's control group that it killed for
/// want of memory, whosever limit they met: the group's, that of one above it, or the machine's. It
/// is a count of a group, so a kill of another process of it may stand for one that was not. What
/// other groups lost, and the machine as a whole, is no evidence. A value.
class OomWatch {
 public:
  /// Looks at the count for the first time. `root` stands for "/" in tests.
  explicit OomWatch(std::filesystem::path root = "/");

  /// What speaks for such a kill since the construction; nothing when nothing does. Each kill is
  /// given as evidence once.
  std::optional<std::string> evidence();

 private:
  std::filesystem::path file_;  // empty: there is no count
  long long given_ = 0;         // up to where the count has been evidence
};

}  // namespace shoal::os
