// How much memory, how large a file and how many descriptors this process may still have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace shoal::os {

struct MemoryLimit {
  std::uint64_t bytes = UINT64_MAX;
  std::string source;  // what sets it: "MemAvailable of /proc/meminfo", "memory.max of …"
};

/// The tightest of free memory and what the control groups above this process leave (version 1 or
/// 2). `root` stands for "/" in tests.
MemoryLimit available_memory(const std::filesystem::path& root = "/");

/// RLIMIT_FSIZE, which also bounds memfds; UINT64_MAX when unlimited.
std::uint64_t max_file_bytes() noexcept;

/// How many more descriptors this process may open now: RLIMIT_NOFILE less those that are open.
std::size_t open_files_left();

}  // namespace shoal::os
