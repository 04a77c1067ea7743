#include "shoal/vector/env_board.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "shoal/os/clock.h"
#include "shoal/trace/recorder.h"

namespace shoal::vector {
namespace {

std::vector<std::string> names_of(int num_workers) {
  std::vector<std::string> names = {"envs",     "workers",   "batches", "env_steps",
                                    "resets",   "wait_ns",   "call",    "since_ns",
                                    "restarts", "in_flight", "segment"};
  for (int worker = 0; worker < num_workers; ++worker) {
    names.push_back(fmt::format("worker {}", worker));
  }
  return names;
}

}  // namespace

EnvBoard::EnvBoard(int num_envs, int num_workers) : board_("envs", names_of(num_workers)) {
  board_[kEnvs].set(num_envs);
  board_[kWorkers].set(num_workers);
  trace::open();
}

void EnvBoard::set_backend(std::string_view backend) noexcept {
  std::string kind = "envs ";
  board_.set_kind(kind.append(backend));
}

void EnvBoard::set_segment(int fd) noexcept {
  struct stat status{};
  if (::fstat(fd, &status) == 0) board_[kSegment].set(static_cast<std::int64_t>(status.st_ino));
}

void EnvBoard::set_worker(int worker, const WorkerHealth& health) noexcept {
  board_[kNames + static_cast<std::size_t>(worker)].set(
      static_cast<std::int64_t>(health.state) << 32 | static_cast<std::int64_t>(health.pid));
}

std::vector<WorkerHealth> EnvBoard::now(std::vector<WorkerHealth> workers) const {
  const bool ended = ended_.load(std::memory_order_relaxed);  // relaxed: no data goes with it
  const bool busy = board_[kCall].value() != static_cast<std::int64_t>(CallState::Call::kNone);
  const std::uint64_t now_ns = os::now_ns();
  for (WorkerHealth& worker : workers) {
    if (ended) {
      worker.state = WorkerState::kClosed;
      worker.pid = 0;
      worker.rss_bytes = 0;
    } else if (busy) {
      const auto since_ns = static_cast<std::uint64_t>(board_[kSinceNs].value());
      worker.state = WorkerState::kStepping;
      worker.since = std::chrono::nanoseconds(now_ns > since_ns ? now_ns - since_ns : 0);
    }
  }
  return workers;
}

}  // namespace shoal::vector
