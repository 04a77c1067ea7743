#include "shoal/vector/env_board.h"

#include <fmt/format.h>
#include <sys/stat.h>

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

}  // namespace shoal::vector
