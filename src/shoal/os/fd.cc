#include "shoal/os/fd.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

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

}  // namespace shoal::os
