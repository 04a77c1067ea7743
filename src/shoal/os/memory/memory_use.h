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

/// From here on this process keeps the memory that it frees, for its next allocations of up to 32
/// MiB each. Otherwise the C library gives large allocations back to the kernel at once, and each
/// of their pages is a fault when they are made again. Without effect where the C library is not
/// glibc.
void keep_freed_memory() noexcept;

/// Watches how many processes of this process's control group the kernel has killed for want of
/// memory, whether they met the limit of the group, of a group above it, or of the machine. It is
/// the group's count: a kill of one of its processes may be taken for that of another one. Kills in
/// other groups are no evidence. A value.
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
