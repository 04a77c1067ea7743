#include "shoal/os/socket/named_channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/poll.h"

namespace shoal::os {
namespace {

Fd channel_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) throw SystemError("create a channel (a Unix socket)");
  return fd;
}

}  // namespace

std::optional<ChannelListener> ChannelListener::bind(const std::string& name) {
  const PacketAddress address = abstract_address(name);
  Fd fd = channel_socket();
  if (::bind(fd.get(), address.pointer(), address.bytes) != 0) {
    if (errno == EADDRINUSE) return {};
    throw SystemError(fmt::format("name a channel @{}", name));
  }
  if (::listen(fd.get(), SOMAXCONN) != 0)
    throw SystemError(fmt::format("listen for channels to @{}", name));
  return ChannelListener(std::move(fd));
}

std::optional<SeqPacket> ChannelListener::accept(Deadline deadline) {
  if (!poll_one(fd_.get(), POLLIN, deadline)) return {};
  Fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd) throw SystemError("accept a channel");
  return SeqPacket(std::move(fd));
}

std::optional<SeqPacket> connect_channel(const std::string& name) {
  const PacketAddress address = abstract_address(name);
  Fd fd = channel_socket();
  while (::connect(fd.get(), address.pointer(), address.bytes) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT) return {};
    if (errno != EINTR) throw SystemError(fmt::format("connect to the channel @{}", name));
  }
  return SeqPacket(std::move(fd));
}

}  // namespace shoal::os
