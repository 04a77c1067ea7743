#include "shoal/process/supervise/worker_handle.h"

#include <fmt/format.h>

#include <csignal>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/os/error.h"

namespace shoal::process {
namespace {

// SIGKILL ends a process at once, unless it waits for a device; then it is left to the kernel.
constexpr std::chrono::milliseconds kKillGrace{5'000};

}  // namespace

WorkerHandle::~WorkerHandle() {
  if (!maker_.is_this()) {
    os::abandon(std::move(keep_alive_));
    os::abandon(std::move(record_));
    channel_.abandon();
    return;
  }
  record_->forget_on_exit();
  if (record_->ended()) return;
  record_->kill();
  record_->wait_ended(os::deadline_after(kKillGrace));
}

std::optional<ExitStatus> WorkerHandle::join(std::chrono::milliseconds timeout) {
  maker_.require(record_->spec().name);
  return record_->wait_ended(os::deadline_after(timeout));
}

void WorkerHandle::kill(int signal) noexcept {
  if (maker_.is_this()) record_->send_signal(signal);
}

}  // namespace shoal::process
