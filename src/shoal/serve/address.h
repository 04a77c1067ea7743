// Where a model service is found: an abstract Unix socket. Its name is enough to connect, and it
// goes with its process.
#pragma once

#include <sys/types.h>

#include <string>

#include "shoal/os/clock.h"
#include "shoal/os/socket/socket.h"

namespace shoal::serve {

inline constexpr std::string_view kAddressPrefix = "shoal-serve-";

/// A name that no other service of this machine has.
std::string fresh_address();

/// Listens at the abstract name. Close-on-exec, non-blocking. Throws SystemError.
os::Fd listen_at(const std::string& address);

/// Accepts a connection that waits at `listener`; none when there is none (any more).
os::Fd accept_from(const os::Fd& listener);

/// Connects to the abstract name. Throws ServiceDied when nobody listens there, SystemError, and
/// Error for a peer of another user.
os::SeqPacket connect_to(const std::string& address);

/// The process that connected; 0 when this process cannot see it (another PID namespace).
pid_t peer_of(int socket);

}  // namespace shoal::serve
