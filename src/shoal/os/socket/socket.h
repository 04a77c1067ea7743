// A packet channel between two processes that also carries descriptors; each message is one packet
// of os/socket/packet.h.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/os/fd.h"
#include "shoal/os/socket/packet.h"

namespace shoal::os {

/// One end of a connected SOCK_SEQPACKET Unix socket; a resource.
///
/// Threads: one sender and one receiver at a time.
/// Invariants: the process that made the other end has this process's effective user id.
/// Death: when the last descriptor of the other end is gone, recv() returns what was sent before,
/// and then kClosed; send() returns kClosed. No SIGPIPE.
class SeqPacket {
 public:
  /// Payloads above this travel in a memfd.
  static constexpr std::size_t kMaxInlineBytes = kMaxInlinePacket;
  static constexpr std::size_t kMaxFds = kMaxPacketFds;

  SeqPacket() noexcept = default;

  /// Takes over a connected socket that was inherited or received. Throws SystemError when `fd` is
  /// not one, Error when it comes from another user.
  explicit SeqPacket(Fd fd);

  /// Both ends of a new channel, close-on-exec.
  static std::pair<SeqPacket, SeqPacket> pair();

  /// Sends one message; the descriptors are borrowed. Waits while the receiver's buffer is full.
  /// Throws InvalidArgument for more than kMaxFds descriptors, SystemError when the kernel refuses.
  [[nodiscard]] SendOutcome send(std::span<const std::byte> bytes, std::span<const int> fds = {},
                                 Deadline deadline = kNoDeadline, std::uint64_t tag = 0);

  /// Receives one message into `message`, which is overwritten. A deadline in the past makes it a
  /// look. Throws SystemError(EMFILE) when descriptors were lost because this process may not open
  /// more, Error for a packet that is not one of ours.
  [[nodiscard]] RecvOutcome recv(Message& message, Deadline deadline = kNoDeadline);

  /// For poll(): readable when recv() would not wait.
  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  [[nodiscard]] Fd release() noexcept { return std::move(fd_); }

  /// Ends both directions for every process that holds this end; whoever waits in recv() returns
  /// kClosed.
  void shutdown() noexcept;
  void close() noexcept { fd_.reset(); }

 private:
  Fd fd_;
};

/// The rule of the constructor: only a peer of the same effective user is spoken to. Throws Error.
void check_peer_uid(uid_t peer, uid_t own);

}  // namespace shoal::os
