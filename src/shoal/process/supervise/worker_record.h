// One started worker, as its handle and the supervisor share it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "shoal/os/clock.h"
#include "shoal/os/process/pidfd.h"
#include "shoal/process/launcher.h"
#include "shoal/process/supervise/output_relay.h"

namespace shoal::process {

/// What is known of a worker, from its request to its end; a resource.
///
/// Threads: any; the supervisor writes, the handle's owner reads and waits.
/// Processes: the parent's.
/// Invariants: starting → running → ended, or starting → failed; never back.
/// Death: of the worker: set_ended() or set_failed(), once, whoever learns of it first.
class WorkerRecord {
 public:
  WorkerRecord(WorkerSpec spec, int position, std::function<void(int)> on_exit)
      : spec_(std::move(spec)),
        position_(position),
        on_exit_(std::move(on_exit)),
        tail_(WorkerProcess::kLogTailLines) {}

  const WorkerSpec& spec() const noexcept { return spec_; }
  LogTail& tail() noexcept { return tail_; }

  /// It runs, as a child of this process.
  void set_running(int pid, os::PidFd pidfd);
  /// It runs, as a child of another process; `send_signal` asks that process to signal it, from any
  /// thread and without waiting.
  void set_running(int pid, std::function<void(int signal)> send_signal);
  void set_failed(std::exception_ptr error);
  /// Wakes those who wait, then calls on_exit. Only the first call counts.
  void set_ended(ExitStatus status);

  int pid() const;     // -1 before it runs
  int pidfd() const;   // borrowed; -1 unless it runs and is a child of this process
  bool ended() const;  // or failed
  std::optional<ExitStatus> exit_status() const;

  /// Waits until it runs. False at the deadline; throws what set_failed() was given.
  bool wait_running(os::Deadline deadline);
  std::optional<ExitStatus> wait_ended(os::Deadline deadline);
  void send_signal(int signal) noexcept;
  /// Sends SIGKILL, now or as soon as it runs.
  void kill() noexcept;

  /// Returns when on_exit is not running and will not be called any more.
  void forget_on_exit();

 private:
  void now_runs_locked(int pid);
  void send_locked(int signal) noexcept;

  const WorkerSpec spec_;
  const int position_;
  std::mutex callback_mutex_;  // held while on_exit_ runs
  std::function<void(int)> on_exit_;
  LogTail tail_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  int pid_ = -1;
  os::PidFd pidfd_;
  std::function<void(int)> ask_to_signal_;
  std::exception_ptr error_;
  std::optional<ExitStatus> status_;
  bool killed_ = false;
};

}  // namespace shoal::process
