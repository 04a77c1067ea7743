// A process, named by a descriptor that never comes to mean another process.
#pragma once

#include <sys/types.h>

#include <optional>

#include "shoal/os/clock.h"
#include "shoal/os/fd.h"

namespace shoal::os {

/// How a process ended: by exit(code), or by a signal.
struct ProcessEnd {
  int code = 0;    // exit code, when signal == 0
  int signal = 0;  // the signal that killed it, or 0
  bool operator==(const ProcessEnd&) const = default;
};

/// A pidfd; a resource. Its descriptor may be sent over a SeqPacket.
///
/// Threads: one at a time.
/// Death: fd() becomes readable (poll) when the process has ended, reaped or not.
class PidFd {
 public:
  PidFd() noexcept = default;
  /// Takes over a received pidfd.
  explicit PidFd(Fd fd) noexcept : fd_(std::move(fd)) {}
  /// Of a running process or a child not yet reaped. Throws SystemError(ESRCH) when there is none.
  static PidFd open(pid_t pid);

  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

  /// Whether the process has ended; never blocks.
  bool ended() const;

  /// Waits for the end; false when `deadline` passed first. Any process that holds the pidfd may
  /// wait.
  [[nodiscard]] bool wait(Deadline deadline) const;

  /// Collects the status of a child of this process that has ended; nothing while it runs, or where
  /// it has ended and is still traced after a second. Throws
  /// SystemError(ECHILD) when it is no child of this process or was collected already.
  std::optional<ProcessEnd> reap() const;

  /// False when the process has ended already.
  bool send_signal(int signal) const;

 private:
  Fd fd_;
};

}  // namespace shoal::os
