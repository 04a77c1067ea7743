// Owns one file descriptor.
#pragma once

#include <utility>

namespace shoal::os {

/// A file descriptor that is closed when its owner goes; a resource, movable only. -1 means none.
///
/// Threads: as an int: one thread at a time.
/// Fork: the child holds its own copy of the descriptor.
class Fd {
 public:
  Fd() noexcept = default;
  /// Takes over `fd`.
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  /// A second descriptor of what `fd` refers to, close-on-exec. Throws SystemError.
  static Fd duplicate(int fd);

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

  /// Gives the descriptor away: the caller closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

  /// Closes what is held and takes over `fd`.
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

/// Sets or clears close-on-exec: an inheritable descriptor survives execve. Throws SystemError.
void set_inheritable(int fd, bool inheritable);

/// Opens /dev/null in the place of stdin, stdout and stderr where they are closed, as in a daemon:
/// another descriptor would get the number, and whoever prints would write into it.
void open_standard_streams() noexcept;

}  // namespace shoal::os
