#include "shoal/os/fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <initializer_list>

#include "shoal/os/error.h"

namespace shoal::os {

Fd Fd::duplicate(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw SystemError(fmt::format("duplicate descriptor {}", fd));
  return Fd(copy);
}

void Fd::reset(int fd) noexcept {
  // Linux closes the descriptor even when close() reports EINTR, so it is never repeated.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

void set_inheritable(int fd, bool inheritable) {
  if (::fcntl(fd, F_SETFD, inheritable ? 0 : FD_CLOEXEC) < 0) {
    throw SystemError(fmt::format("set close-on-exec of descriptor {}", fd));
  }
}

void open_standard_streams() noexcept {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd == stream) {
      ::fcntl(fd, F_SETFD, 0);
    } else if (fd >= 0) {  // another thread was faster
      ::close(fd);
    }
  }
}

}  // namespace shoal::os
