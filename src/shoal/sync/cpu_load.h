// Whether many more threads want to run than there are CPUs.
#pragma once

#include <cstdint>
#include <filesystem>

#include "shoal/os/clock.h"

namespace shoal::sync {

/// Samples the number of runnable threads of the machine from /proc/loadavg, at most once a period.
///
/// Threads: one at a time. It holds no descriptor: there may be one for each thing that is waited
/// for.
class CpuLoad {
 public:
  /// `cpus` are those of the machine. Without a readable `loadavg` it is never crowded.
  explicit CpuLoad(int cpus = online_cpus(),
                   const std::filesystem::path& loadavg = "/proc/loadavg");

  static constexpr std::uint64_t kSamplePeriodNs = 10'000'000;

  /// More runnable threads than CPUs and one that takes turns, smoothed over the last samples.
  bool crowded() noexcept { return crowded(os::now_ns()); }
  /// The same at a given time.
  bool crowded(std::uint64_t now_ns) noexcept;

  /// CPUs of the machine that are switched on.
  static int online_cpus() noexcept;

 private:
  void sample() noexcept;

  std::filesystem::path loadavg_;
  int cpus_;
  std::uint64_t next_sample_ns_ = 0;
  double runnable_ = 1.0;
};

}  // namespace shoal::sync
