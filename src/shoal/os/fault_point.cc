#include "shoal/os/fault_point.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

namespace shoal::os {
namespace internal {

std::atomic<bool> fault_points_armed{false};

}  // namespace internal
namespace {

struct Armed {
  std::string name;
  std::uint64_t nth = 0;
  int signal = SIGKILL;
  std::atomic<std::uint64_t> passes{0};
};

Armed& armed() {
  static Armed value;
  return value;
}

/// "name:n" or "name" of the variable of the process's start.
[[maybe_unused]] const bool armed_at_start = [] {
  const char* text = std::getenv("SHOAL_FAULT_POINT");
  if (text == nullptr) return false;
  const std::string_view all(text);
  const std::size_t colon = all.rfind(':');
  std::uint64_t nth = 1;
  if (colon != std::string_view::npos) nth = std::strtoull(text + colon + 1, nullptr, 10);
  arm_fault_point(std::string(all.substr(0, colon)), nth);
  return true;
}();

}  // namespace

void arm_fault_point(const std::string& name, std::uint64_t nth, int signal) {
  armed().name = name;
  armed().nth = nth;
  armed().signal = signal;
  armed().passes = 0;
  internal::fault_points_armed = !name.empty();
}

std::uint64_t fault_point_passes() noexcept { return armed().passes; }

void internal::pass_fault_point(const char* name) noexcept {
  if (armed().name != "*" && armed().name != name) return;
  if (++armed().passes != armed().nth) return;
  ::kill(::getpid(), armed().signal);
  while (armed().signal == SIGKILL) ::pause();
}

}  // namespace shoal::os
