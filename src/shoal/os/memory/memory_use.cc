#include "shoal/os/memory/memory_use.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <limits>

#include "shoal/os/fd.h"
#include "shoal/os/limits/cgroup.h"
#include "shoal/os/memory/mapping.h"

namespace shoal::os {
namespace {

/// The value of line "oom_kill N" of a file.
std::optional<long long> oom_kills(const std::filesystem::path& file) {
  std::ifstream lines(file);
  std::string key;
  long long value = 0;
  while (lines >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return std::nullopt;
}

}  // namespace

MemoryUse memory_use(pid_t pid) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/statm", static_cast<int>(pid));
  const Fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::array<char, 128> text{};
  if (::read(file.get(), text.data(), text.size() - 1) <= 0) return {};
  unsigned long long total = 0, resident = 0, shared = 0;
  if (std::sscanf(text.data(), "%llu %llu %llu", &total, &resident, &shared) != 3) return {};
  const std::uint64_t page = page_size();
  return {resident * page, (resident > shared ? resident - shared : 0) * page, total * page};
}

void keep_freed_memory() noexcept {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // as large as it can be
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

OomWatch::OomWatch(std::filesystem::path root) {
  const auto folder = own_cgroup_directory("memory", root);
  if (!folder) return;
  // Version 2, without the groups below this one where the kernel tells; version 1.
  for (const char* name : {"memory.events.local", "memory.events", "memory.oom_control"}) {
    const auto value = oom_kills(*folder / name);
    if (!value) continue;
    file_ = *folder / name;
    given_ = *value;
    return;
  }
}

std::optional<std::string> OomWatch::evidence() {
  if (file_.empty()) return std::nullopt;
  const long long now = oom_kills(file_).value_or(given_);
  if (now <= given_) return std::nullopt;
  return fmt::format("oom_kill of {} rose from {} to {}", file_.string(), given_++, now);
}

}  // namespace shoal::os
