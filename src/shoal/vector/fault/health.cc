#include "shoal/vector/fault/health.h"

#include "shoal/os/memory/memory_use.h"

namespace shoal::vector {

std::string_view name(WorkerState state) noexcept {
  switch (state) {
    case WorkerState::kStarting:
      return "starting";
    case WorkerState::kIdle:
      return "idle";
    case WorkerState::kStepping:
      return "stepping";
    case WorkerState::kHung:
      return "hung";
    case WorkerState::kRestarting:
      return "restarting";
    case WorkerState::kDropped:
      return "dropped";
    case WorkerState::kClosed:
      break;
  }
  return "closed";
}

std::uint64_t rss_of(int pid) noexcept { return os::memory_use(pid).resident_bytes; }

}  // namespace shoal::vector
