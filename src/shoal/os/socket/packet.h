// One message as one packet of a Unix socket.
//
// On the wire each packet is a 24-byte frame header and the bytes:
//
//   0        4        8                 16               24
//   | magic  | kind   | payload bytes   | tag            | payload (inline) …  |   SCM_RIGHTS
//
// kind 0: the payload follows the header. kind 1: the payload is the content of a sealed memfd,
// which is the first of the descriptors; so a message of any size is one packet and never blocks
// half sent. The tag is the sender's: what it means is for the layer above to say.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/os/fd.h"

namespace shoal::os {

struct Message {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;  // close-on-exec
  std::uint64_t tag = 0;
};

enum class SendOutcome { kSent, kTimedOut, kClosed };
enum class RecvOutcome { kMessage, kTimedOut, kClosed };

/// Payloads above this travel in a memfd.
inline constexpr std::size_t kMaxInlinePacket = 64 * 1024;
/// The kernel's limit (SCM_MAX_FD), less one for a payload's memfd.
inline constexpr std::size_t kMaxPacketFds = 252;

/// Borrows what is sent.
struct PacketContent {
  std::span<const std::byte> bytes;
  std::span<const int> fds;
  std::uint64_t tag = 0;
  std::size_t max_inline_bytes = kMaxInlinePacket;  // at most that
};

struct PacketAddress {
  sockaddr_un name{};
  socklen_t bytes = 0;

  const sockaddr* pointer() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }
};

/// Of a Unix socket with an abstract name. Throws Error for one that is empty or too long.
PacketAddress abstract_address(const std::string& name);

/// Sends one packet over `socket`, to its peer or to `to`. Waits while the buffer is full, and for
/// a while where too many descriptors are on their way. kClosed: nobody is there. No SIGPIPE.
/// Throws InvalidArgument for too many descriptors, SystemError when the kernel refuses.
[[nodiscard]] SendOutcome send_packet(int socket, const PacketContent& content, Deadline deadline,
                                      const PacketAddress* to = nullptr);

/// Receives one packet into `message`, which is overwritten. A deadline in the past makes it a
/// look. Throws SystemError(EMFILE) when descriptors were lost because this process may not open
/// more, Error for a packet that is not one of ours; the packet is gone then, and its tag, where it
/// has one, is in `message`.
[[nodiscard]] RecvOutcome recv_packet(int socket, Message& message, Deadline deadline);

}  // namespace shoal::os
