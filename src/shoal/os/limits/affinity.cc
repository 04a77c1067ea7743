#include "shoal/os/limits/affinity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <sstream>

#include "shoal/os/error.h"
#include "shoal/os/limits/cgroup.h"

namespace shoal::os {
namespace {

constexpr int kMaxCpus = 1 << 16;

/// A cpu_set_t of any size.
class CpuMask {
 public:
  explicit CpuMask(int cpus)
      : cpus_(cpus), set_(CPU_ALLOC(cpus), [](cpu_set_t* set) { CPU_FREE(set); }) {
    if (!set_) throw SystemError("allocate a CPU set", ENOMEM);
    CPU_ZERO_S(bytes(), set_.get());
  }
  std::size_t bytes() const { return CPU_ALLOC_SIZE(cpus_); }
  cpu_set_t* get() const { return set_.get(); }
  int cpus() const { return cpus_; }

 private:
  int cpus_;
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set_;
};

/// Version 2: "max 100000" or "200000 100000" in cpu.max. Version 1: two files; -1 is no limit.
std::optional<double> quota_of(const std::filesystem::path& directory) {
  double quota = 0, period = 0;
  if (const auto line = read_line(directory / "cpu.max")) {
    std::istringstream text(*line);
    if (!(text >> quota >> period)) return std::nullopt;
  } else {
    quota = static_cast<double>(read_number(directory / "cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(read_number(directory / "cpu.cfs_period_us").value_or(0));
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

std::vector<int> cpu_set() {
  // The kernel refuses a mask smaller than its own with EINVAL.
  for (int cpus = 1024; cpus <= kMaxCpus; cpus *= 2) {
    CpuMask mask(cpus);
    if (::sched_getaffinity(0, mask.bytes(), mask.get()) == 0) {
      std::vector<int> found;
      for (int cpu = 0; cpu < cpus; ++cpu) {
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), mask.bytes(), mask.get()))
          found.push_back(cpu);
      }
      return found;
    }
    if (errno != EINVAL) break;
  }
  throw SystemError("ask for the CPUs of this thread");
}

int current_cpu() noexcept { return ::sched_getcpu(); }

void set_cpu_set(std::span<const int> cpus, int tid) {
  const auto attempt = fmt::format("confine thread {} to the CPUs {}", tid, fmt::join(cpus, ","));
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= kMaxCpus) throw SystemError(attempt, EINVAL);
  }
  CpuMask mask(cpus.empty() ? 1 : *std::max_element(cpus.begin(), cpus.end()) + 1);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), mask.bytes(), mask.get());
  if (::sched_setaffinity(tid, mask.bytes(), mask.get()) != 0) throw SystemError(attempt);
}

std::optional<double> cpu_quota(const std::filesystem::path& root) {
  std::optional<double> tightest;
  for (const auto& directory : cgroup_directories("cpu", root)) {
    const auto quota = quota_of(directory);
    if (quota && (!tightest || *quota < *tightest)) tightest = quota;
  }
  return tightest;
}

int allowed_cpus() {
  const int set = static_cast<int>(cpu_set().size());
  const auto quota = cpu_quota();
  if (!quota || *quota >= set) return std::max(set, 1);
  return std::max(1, static_cast<int>(std::ceil(*quota)));
}

}  // namespace shoal::os
