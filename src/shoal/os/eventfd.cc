#include "shoal/os/eventfd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "shoal/os/error.h"

namespace shoal::os {

EventFd::EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw SystemError("create an eventfd");
}

void EventFd::notify() noexcept {
  const std::uint64_t one = 1;
  // Fails only when the count is at its end: then it is readable anyhow.
  static_cast<void>(!::write(fd_.get(), &one, sizeof one));
}

bool EventFd::clear() noexcept {
  std::uint64_t count = 0;
  return ::read(fd_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace shoal::os
