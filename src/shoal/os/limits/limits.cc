#include "shoal/os/limits/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <fstream>
#include <sstream>
#include <system_error>

#include "shoal/os/limits/cgroup.h"

namespace shoal::os {
namespace {

/// The value in bytes of a "Name:   123 kB" line.
std::uint64_t meminfo(const std::filesystem::path& file, const std::string& name,
                      std::uint64_t missing) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream text(line);
    std::string key;
    std::uint64_t kilobytes = 0;
    if (text >> key >> kilobytes && key == name + ":") return kilobytes * 1024;
  }
  return missing;
}

/// The page cache of a group: what it gives back before it runs out.
std::uint64_t reclaimable(const std::filesystem::path& directory) {
  std::ifstream stream(directory / "memory.stat");
  std::uint64_t bytes = 0;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream text(line);
    std::string key;
    std::uint64_t value = 0;
    const bool version1 = std::filesystem::exists(directory / "memory.limit_in_bytes");
    if (text >> key >> value && (key == (version1 ? "total_inactive_file" : "inactive_file"))) {
      bytes = value;
    }
  }
  return bytes;
}

/// What the group in `directory` still allows.
MemoryLimit group_limit(const std::filesystem::path& directory) {
  for (const auto& [limit_name, usage_name] :
       {std::pair{"memory.max", "memory.current"},
        std::pair{"memory.limit_in_bytes", "memory.usage_in_bytes"}}) {
    const auto limit = read_number(directory / limit_name);
    const auto usage = read_number(directory / usage_name);
    if (!limit || !usage || *limit < 0) continue;
    const auto used = static_cast<std::uint64_t>(*usage);
    const auto cache = reclaimable(directory);
    const auto held = used > cache ? used - cache : 0;
    const auto allowed = static_cast<std::uint64_t>(*limit);
    return {allowed > held ? allowed - held : 0,
            fmt::format("{} of the control group {}", limit_name, directory.string())};
  }
  return {};
}

}  // namespace

MemoryLimit available_memory(const std::filesystem::path& root) {
  const auto file = root / "proc/meminfo";
  MemoryLimit tightest;
  const std::uint64_t free = meminfo(file, "MemAvailable", UINT64_MAX);
  if (free != UINT64_MAX) {
    tightest = {free + meminfo(file, "SwapFree", 0), "MemAvailable and SwapFree of /proc/meminfo"};
  }
  for (const auto& directory : cgroup_directories("memory", root)) {
    const MemoryLimit limit = group_limit(directory);
    if (limit.bytes < tightest.bytes) tightest = limit;
  }
  return tightest;
}

std::uint64_t max_file_bytes() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

std::size_t open_files_left() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  std::size_t open = 0;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", ignored), end; entry != end;
       entry.increment(ignored)) {
    ++open;
  }
  if (open > 0) --open;  // the one that lists them
  return limit.rlim_cur > open ? static_cast<std::size_t>(limit.rlim_cur - open) : 0;
}

}  // namespace shoal::os
