#include "shoal/os/poll.h"

#include <fmt/format.h>

#include <cerrno>

#include "shoal/os/error.h"

namespace shoal::os {

bool poll_one(int fd, short events, Deadline deadline) {
  pollfd entry{fd, events, 0};
  for (;;) {
    const std::timespec left = to_timespec(time_left(deadline));
    const int ready = ::ppoll(&entry, 1, deadline == kNoDeadline ? nullptr : &left, nullptr);
    if (ready > 0) {
      if ((entry.revents & POLLNVAL) != 0) {
        throw SystemError(fmt::format("wait for descriptor {}", fd), EBADF);
      }
      return true;
    }
    if (ready == 0) return false;
    if (errno != EINTR) throw SystemError(fmt::format("wait for descriptor {}", fd));
  }
}

}  // namespace shoal::os
