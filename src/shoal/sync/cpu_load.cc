#include "shoal/sync/cpu_load.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

#include "shoal/os/fd.h"

namespace shoal::sync {
namespace {

constexpr double kWeight = 0.25;  // of a new sample
// One thread more than CPUs is no crowd: who samples has just woken the one it waits for, and who
// spins makes room. Half of one is for the smoothing.
constexpr double kSpare = 1.5;

}  // namespace

CpuLoad::CpuLoad(int cpus, const std::filesystem::path& loadavg) : loadavg_(loadavg), cpus_(cpus) {}

bool CpuLoad::crowded(std::uint64_t now_ns) noexcept {
  if (now_ns >= next_sample_ns_) {
    next_sample_ns_ = now_ns + kSamplePeriodNs;
    sample();
  }
  return runnable_ > cpus_ + kSpare;
}

void CpuLoad::sample() noexcept {
  // "0.20 0.18 0.12 2/345 6789": runnable threads before the slash of the fourth field.
  std::array<char, 128> buffer{};
  const os::Fd file(::open(loadavg_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return;
  const ssize_t bytes = ::read(file.get(), buffer.data(), buffer.size());
  if (bytes <= 0) return;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(bytes));
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return;
  const auto begin = text.rfind(' ', slash) + 1;
  int runnable = 0;
  if (std::from_chars(text.data() + begin, text.data() + slash, runnable).ec != std::errc()) return;
  runnable_ += kWeight * (runnable - runnable_);
}

int CpuLoad::online_cpus() noexcept {
  const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  return cpus < 1 ? 1 : static_cast<int>(cpus);
}

}  // namespace shoal::sync
