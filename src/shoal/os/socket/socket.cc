#include "shoal/os/socket/socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "shoal/os/error.h"

namespace shoal::os {

SeqPacket::SeqPacket(Fd fd) : fd_(std::move(fd)) {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    throw SystemError(fmt::format("use descriptor {} as a channel", fd_.get()));
  }
  ucred peer{};
  size = sizeof peer;
  if (type != SOCK_SEQPACKET ||
      ::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid == 0) {
    throw Error(fmt::format(
        "cannot use descriptor {} as a channel: it is no connected SOCK_SEQPACKET Unix socket",
        fd_.get()));
  }
  check_peer_uid(peer.uid, ::geteuid());
}

std::pair<SeqPacket, SeqPacket> SeqPacket::pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw SystemError("create a channel (a pair of Unix sockets)");
  }
  Fd first(ends[0]), second(ends[1]);
  return {SeqPacket(std::move(first)), SeqPacket(std::move(second))};
}

SendOutcome SeqPacket::send(std::span<const std::byte> bytes, std::span<const int> fds,
                            Deadline deadline, std::uint64_t tag) {
  return send_packet(fd_.get(), {.bytes = bytes, .fds = fds, .tag = tag}, deadline);
}

RecvOutcome SeqPacket::recv(Message& message, Deadline deadline) {
  return recv_packet(fd_.get(), message, deadline);
}

void SeqPacket::shutdown() noexcept { ::shutdown(fd_.get(), SHUT_RDWR); }

void check_peer_uid(uid_t peer, uid_t own) {
  if (peer != own) {
    throw Error(fmt::format(
        "refused a channel from user {}: only processes of user {} are spoken to", peer, own));
  }
}

}  // namespace shoal::os
