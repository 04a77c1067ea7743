// For tests: a forked child process that is gone when the test is.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>

#include "shoal/os/process/pidfd.h"

namespace shoal::os::testing {

/// Forks a child that runs `body` and exits with what it returns (255 when it throws). Destroying
/// it kills the child.
///
/// The child has the memory and descriptors of the parent, and only the thread that forked.
class Child {
 public:
  explicit Child(const std::function<int()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const noexcept { return pid_; }
  const PidFd& pidfd() const noexcept { return pidfd_; }

  /// Waits until the child sleeps in the kernel; false when it ended or 30 s passed.
  bool wait_until_asleep() const;

  /// Waits for the end and collects it; nothing when 30 s passed.
  std::optional<ProcessEnd> join();

  /// Kills with SIGKILL and collects.
  void kill();

 private:
  pid_t pid_ = -1;
  PidFd pidfd_;
  std::optional<ProcessEnd> end_;
};

/// SIGSTOP. Returns when each of its threads has stopped: until then they go on. False when it ended, or 30 s passed.
bool stop(pid_t pid);

/// A bound that no passing test comes near.
inline Deadline test_deadline() { return deadline_after(std::chrono::seconds(30)); }

}  // namespace shoal::os::testing
