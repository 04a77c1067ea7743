// A wake-up that poll() can wait for.
#pragma once

#include "shoal/os/fd.h"

namespace shoal::os {

/// An eventfd; a resource.
/// Threads and processes: any may notify(), any may clear().
class EventFd {
 public:
  /// Throws SystemError.
  EventFd();
  /// Takes over a received eventfd.
  explicit EventFd(Fd fd) noexcept : fd_(std::move(fd)) {}

  /// Makes fd() readable; async-signal-safe.
  void notify() noexcept;

  /// Makes fd() unreadable; returns whether it was readable.
  bool clear() noexcept;

  int fd() const noexcept { return fd_.get(); }

 private:
  Fd fd_;
};

}  // namespace shoal::os
