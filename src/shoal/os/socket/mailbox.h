// One process sends to many, over one descriptor, and each receives over a descriptor of its own.
//
// Both are datagram sockets with abstract names, which the kernel forgets with their last holder. A
// mailbox is connected to its sender before it has a name, and the kernel lets only the peer send
// to a connected datagram socket. The sender's own socket is shut for receiving. So another
// process, of whichever user, that reads the names in /proc/net/unix can neither put anything into
// a mailbox nor fill a queue. (Names belong to a network namespace: all of them have to be in one.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shoal/os/clock.h"
#include "shoal/os/fd.h"
#include "shoal/os/socket/packet.h"

namespace shoal::os {

/// A name that nobody else has, for a sender and, with something appended, for its mailboxes.
std::string unique_socket_name();

/// Sends to the mailboxes that were opened with its name; a resource.
///
/// Threads: any.
/// Limit: what was sent to all mailboxes together and not taken shares one buffer. It has room for
/// kMaxWaiting small messages (kSmallBytes) to each of kMaxMailboxes; with no more than that, one
/// mailbox never makes a send to another one wait.
class MailboxSender {
 public:
  /// Payloads above this travel in a memfd, which counts for less in the buffer.
  static constexpr std::size_t kSmallBytes = 640;
  static constexpr int kMaxMailboxes = 64;
  static constexpr int kMaxWaiting = 4;

  MailboxSender() noexcept = default;
  /// Throws SystemError, Error for a name that does not fit into an address.
  static MailboxSender create(const std::string& name);

  /// kClosed: there is no such mailbox (any more). Else as SeqPacket::send().
  [[nodiscard]] SendOutcome send(const std::string& mailbox, std::span<const std::byte> bytes,
                                 std::span<const int> fds = {}, Deadline deadline = kNoDeadline,
                                 std::uint64_t tag = 0) const;

  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

 private:
  Fd fd_;
};

/// Receives what one sender sends; a resource.
///
/// Threads: one at a time.
/// Death: of the sender: cannot be seen here.
class Mailbox {
 public:
  Mailbox() noexcept = default;
  /// Throws SystemError: ECONNREFUSED when there is no such sender, EADDRINUSE for a name that is
  /// taken.
  static Mailbox open(const std::string& name, const std::string& sender);

  /// As SeqPacket::recv(), but for kClosed, which does not happen.
  [[nodiscard]] RecvOutcome recv(Message& message, Deadline deadline = kNoDeadline);

  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

 private:
  Fd fd_;
};

}  // namespace shoal::os
