// Channels that are found by name: an abstract Unix socket to which others connect.
#pragma once

#include <optional>
#include <string>

#include "shoal/os/clock.h"
#include "shoal/os/fd.h"
#include "shoal/os/socket/socket.h"

namespace shoal::os {

/// Holds a name and takes connections to it; a resource.
///
/// Threads: one at a time.
/// Processes: of this network namespace; the name belongs to one of them at a time.
/// Death: the kernel takes the name back.
class ChannelListener {
 public:
  /// Nothing where another socket has the name. Throws Error for a name that is too long,
  /// SystemError.
  static std::optional<ChannelListener> bind(const std::string& name);

  /// For poll(): readable when there is a connection.
  int fd() const noexcept { return fd_.get(); }
  /// Nothing when `deadline` passed first. Throws Error for a process of another user.
  std::optional<SeqPacket> accept(Deadline deadline);

 private:
  explicit ChannelListener(Fd fd) noexcept : fd_(std::move(fd)) {}
  Fd fd_;
};

/// Nothing where nobody has the name. Throws Error where a process of another user has it,
/// SystemError.
std::optional<SeqPacket> connect_channel(const std::string& name);

}  // namespace shoal::os
