#include "shoal/process/supervise/worker_handle.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/os/error.h"

namespace shoal::process {
namespace {

// SIGKILL ends a process at once, unless it waits for a device; then it is left to the kernel.
constexpr std::chrono::milliseconds kKillGrace{5'000};

/// Keeps an object for ever, because its destructor cannot run in this process.
template <class T>
void abandon(std::shared_ptr<T> object) {
  static_cast<void>(new std::shared_ptr<T>(std::move(object)));
}

}  // namespace

Owner::Owner() noexcept : pid_(::getpid()) {}

bool Owner::is_this_process() const noexcept { return ::getpid() == pid_; }

void Owner::require(const std::string& what) const {
  if (is_this_process()) return;
  throw InvalidState(fmt::format(
      "{} belongs to process {} and cannot be used in its forked child {}; make a new one here",
      what, pid_, ::getpid()));
}

WorkerHandle::~WorkerHandle() {
  if (!owner_.is_this_process()) {
    abandon(std::move(keep_alive_));
    abandon(std::move(record_));
    channel_.abandon();
    return;
  }
  record_->forget_on_exit();
  if (record_->ended()) return;
  record_->kill();
  record_->wait_ended(os::deadline_after(kKillGrace));
}

std::optional<ExitStatus> WorkerHandle::join(std::chrono::milliseconds timeout) {
  owner_.require(record_->spec().name);
  return record_->wait_ended(os::deadline_after(timeout));
}

void WorkerHandle::kill(int signal) noexcept {
  if (owner_.is_this_process()) record_->send_signal(signal);
}

}  // namespace shoal::process
