// Where the control groups of this process keep their files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shoal::os {

/// The directories of this process's control group and of those above it, innermost first: of the
/// version 1 hierarchy that has `controller` ("cpu", "memory"), or else of version 2. Empty when
/// there is none. In a container that cannot see its own group's directory, the mount point is all
/// there is. `root` stands for "/" in tests.
std::vector<std::filesystem::path> cgroup_directories(const std::string& controller,
                                                      const std::filesystem::path& root = "/");

/// The directory of this process's control group itself, in the same hierarchy; nothing where it
/// cannot be seen.
std::optional<std::filesystem::path> own_cgroup_directory(const std::string& controller,
                                                          const std::filesystem::path& root = "/");

/// The first line of a small file, without its end; nothing when it cannot be read.
std::optional<std::string> read_line(const std::filesystem::path& file);

/// read_line() as a number; nothing for text such as "max".
std::optional<long long> read_number(const std::filesystem::path& file);

}  // namespace shoal::os
