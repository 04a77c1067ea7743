// How many CPUs this process may use.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace shoal::os {

/// The CPUs that the calling thread may run on, ascending. Throws SystemError.
std::vector<int> cpu_set();

/// The CPU that the calling thread runs on at this moment; -1 where the kernel does not say.
int current_cpu() noexcept;

/// Confines thread `tid` (0: the calling one; a process id: its main thread) and those it starts
/// from now on to `cpus`. Throws SystemError when none of them is usable, or the thread is gone.
void set_cpu_set(std::span<const int> cpus, int tid = 0);

/// CPUs' worth of time that the control groups above this process allow (version 1 or 2, the
/// tightest of them); nothing when there is no limit. `root` stands for "/" in tests.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// The smaller of the CPU set and the quota rounded up; at least 1. Reads files: ask once, not in a
/// loop.
int allowed_cpus();

}  // namespace shoal::os
