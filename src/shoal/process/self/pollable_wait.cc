#include "shoal/process/self/pollable_wait.h"

#include <utility>

#include "shoal/os/process/signals.h"
#include "shoal/process/self/own_thread.h"

namespace shoal::process {

PollableWait::~PollableWait() {
  if (!thread_.joinable()) return;
  if (!maker_.is_this()) {
    os::abandon(std::move(thread_));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PollableWait::arm(Wait wait) {
  const std::lock_guard lock(mutex_);
  if (wait_ != nullptr) return;
  static_cast<void>(event_.clear());
  wait_ = std::move(wait);
  if (!thread_.joinable()) {
    const os::BlockSignals block = os::BlockSignals::all();  // they are for the program's threads
    thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
}

void PollableWait::run() {
  const OwnThread own_thread;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || wait_ != nullptr; });
    if (closing_) return;
    const Wait wait = wait_;
    lock.unlock();
    static_cast<void>(wait(os::deadline_after(kSlice)));
    lock.lock();
    wait_ = nullptr;
    event_.notify();
  }
}

}  // namespace shoal::process
