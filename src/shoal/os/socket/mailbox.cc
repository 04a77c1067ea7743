#include "shoal/os/socket/mailbox.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "shoal/os/error.h"

namespace shoal::os {
namespace {

Fd datagram_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) throw SystemError("create a mailbox (a Unix datagram socket)");
  return fd;
}

}  // namespace

std::string unique_socket_name() {
  std::array<std::uint64_t, 2> random{};
  if (::getrandom(random.data(), sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    throw SystemError("get random bytes for the name of a socket");
  }
  return fmt::format("shoal-{:016x}{:016x}", random[0], random[1]);
}

MailboxSender MailboxSender::create(const std::string& name) {
  MailboxSender sender;
  sender.fd_ = datagram_socket();
  const PacketAddress address = abstract_address(name);
  if (::bind(sender.fd_.get(), address.pointer(), address.bytes) != 0) {
    throw SystemError(fmt::format("name a mailbox's sender @{}", name));
  }
  ::shutdown(sender.fd_.get(), SHUT_RD);
  // Doubled by the kernel, within net.core.wmem_max: room for kMaxWaiting small messages to each.
  const int bytes = 256 * 1024;
  ::setsockopt(sender.fd_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  return sender;
}

SendOutcome MailboxSender::send(const std::string& mailbox, std::span<const std::byte> bytes,
                                std::span<const int> fds, Deadline deadline,
                                std::uint64_t tag) const {
  const PacketAddress to = abstract_address(mailbox);
  return send_packet(fd_.get(),
                     {.bytes = bytes, .fds = fds, .tag = tag, .max_inline_bytes = kSmallBytes},
                     deadline, &to);
}

Mailbox Mailbox::open(const std::string& name, const std::string& sender) {
  Mailbox mailbox;
  mailbox.fd_ = datagram_socket();
  const PacketAddress peer = abstract_address(sender);
  if (::connect(mailbox.fd_.get(), peer.pointer(), peer.bytes) != 0) {
    throw SystemError(fmt::format("connect a mailbox to its sender @{}", sender));
  }
  const PacketAddress own = abstract_address(name);
  if (::bind(mailbox.fd_.get(), own.pointer(), own.bytes) != 0) {
    throw SystemError(fmt::format("name a mailbox @{}", name));
  }
  return mailbox;
}

RecvOutcome Mailbox::recv(Message& message, Deadline deadline) {
  return recv_packet(fd_.get(), message, deadline);
}

}  // namespace shoal::os
