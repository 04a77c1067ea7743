#include "shoal/process/supervise/worker_record.h"

#include <csignal>
#include <utility>

namespace shoal::process {
namespace {

/// condition_variable::wait_until does not take the end of time.
template <class Condition>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                os::Deadline deadline, Condition condition) {
  if (deadline == os::kNoDeadline) {
    changed.wait(lock, condition);
    return true;
  }
  return changed.wait_until(lock, deadline, condition);
}

}  // namespace

void WorkerRecord::set_running(int pid, os::PidFd pidfd) {
  const std::lock_guard lock(mutex_);
  pidfd_ = std::move(pidfd);
  now_runs_locked(pid);
}

void WorkerRecord::set_running(int pid, std::function<void(int)> send_signal) {
  const std::lock_guard lock(mutex_);
  ask_to_signal_ = std::move(send_signal);
  now_runs_locked(pid);
}

void WorkerRecord::now_runs_locked(int pid) {
  pid_ = pid;
  if (killed_) send_locked(SIGKILL);
  changed_.notify_all();
}

void WorkerRecord::set_failed(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (pid_ >= 0 || error_) return;
  error_ = std::move(error);
  changed_.notify_all();
}

void WorkerRecord::set_ended(ExitStatus status) {
  {
    const std::lock_guard lock(mutex_);
    if (status_) return;
    status_ = status;
    // Before anybody is told, so that no descriptor of the worker is left when join() returns.
    pidfd_ = os::PidFd();
    ask_to_signal_ = nullptr;
    changed_.notify_all();
  }
  const std::lock_guard lock(callback_mutex_);
  if (on_exit_) on_exit_(position_);
}

int WorkerRecord::pid() const {
  const std::lock_guard lock(mutex_);
  return pid_;
}

int WorkerRecord::pidfd() const {
  const std::lock_guard lock(mutex_);
  return pidfd_.fd();
}

bool WorkerRecord::ended() const {
  const std::lock_guard lock(mutex_);
  return status_.has_value() || error_ != nullptr;
}

std::optional<ExitStatus> WorkerRecord::exit_status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool WorkerRecord::wait_running(os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!wait_until(changed_, lock, deadline, [this] { return pid_ >= 0 || error_; })) return false;
  if (error_) std::rethrow_exception(error_);
  return true;
}

std::optional<ExitStatus> WorkerRecord::wait_ended(os::Deadline deadline) {
  std::unique_lock lock(mutex_);
  wait_until(changed_, lock, deadline, [this] { return status_.has_value() || error_; });
  return status_;
}

void WorkerRecord::send_signal(int signal) noexcept {
  const std::lock_guard lock(mutex_);
  send_locked(signal);
}

void WorkerRecord::kill() noexcept {
  const std::lock_guard lock(mutex_);
  killed_ = true;
  send_locked(SIGKILL);
}

void WorkerRecord::send_locked(int signal) noexcept {
  if (status_) return;
  try {
    if (pidfd_) static_cast<void>(pidfd_.send_signal(signal));
    if (ask_to_signal_) ask_to_signal_(signal);
  } catch (const std::exception&) {
    // Not permitted: the worker has changed its user. Its end is not ours to force then.
  }
}

void WorkerRecord::forget_on_exit() {
  const std::lock_guard lock(callback_mutex_);
  on_exit_ = nullptr;
}

}  // namespace shoal::process
