// Waiting for a descriptor.
#pragma once

#include <poll.h>

#include "shoal/os/clock.h"

namespace shoal::os {

/// Waits until `events` (POLLIN, POLLOUT) or an error or hang-up is there on `fd`; false when
/// `deadline` passed first. A signal handler does not end the wait. Throws SystemError.
[[nodiscard]] bool poll_one(int fd, short events, Deadline deadline);

}  // namespace shoal::os
