#include "shoal/os/socket/packet.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>

#include "shoal/os/error.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/os/memory/memfd.h"
#include "shoal/os/poll.h"

namespace shoal::os {
namespace {

enum class FrameKind : std::uint32_t { kInline = 0, kMemfd = 1 };

struct FrameHeader {
  std::uint32_t magic;
  FrameKind kind;
  std::uint64_t payload_bytes;
  std::uint64_t tag;
};
static_assert(sizeof(FrameHeader) == 24);

constexpr std::uint32_t kFrameMagic = 0x4d524653;  // "SFRM"
constexpr std::chrono::milliseconds kTooManyPatience{5'000};
constexpr std::chrono::milliseconds kTooManyPause{1};
constexpr std::size_t kMaxPacketBytes = sizeof(FrameHeader) + kMaxInlinePacket;
constexpr std::size_t kMaxAncillaryFds = kMaxPacketFds + 1;

/// Space for the descriptors of one packet, aligned as the kernel wants it.
union Ancillary {
  cmsghdr header;
  char bytes[CMSG_SPACE(kMaxAncillaryFds * sizeof(int))];
};

void put_fds(msghdr& packet, Ancillary& ancillary, std::span<const int> fds) {
  if (fds.empty()) return;
  std::memset(&ancillary, 0, sizeof ancillary);
  packet.msg_control = &ancillary;
  packet.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&packet);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
}

std::vector<Fd> take_fds(msghdr& packet) {
  std::vector<Fd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&packet); header != nullptr;
       header = CMSG_NXTHDR(&packet, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    fds.reserve(fds.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

bool is_closed(int error) {
  return error == EPIPE || error == ECONNRESET || error == ENOTCONN || error == ECONNREFUSED;
}

/// One packet out. What the kernel refuses for good is thrown, with the cause where it is known.
SendOutcome send_now(int socket, const msghdr& packet, std::size_t num_fds, Deadline deadline) {
  Deadline patience = Deadline::max();  // with ETOOMANYREFS
  for (;;) {
    if (::sendmsg(socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return SendOutcome::kSent;
    const int error = errno;
    if (error == EINTR) continue;
    if (is_closed(error)) return SendOutcome::kClosed;
    if (error == EAGAIN || error == EWOULDBLOCK) {
      if (!poll_one(socket, POLLOUT, deadline)) return SendOutcome::kTimedOut;
      continue;
    }
    if (error == ETOOMANYREFS) {
      // Descriptors under way, of all this user's processes, count against RLIMIT_NOFILE. Nothing
      // tells when one is taken.
      patience = std::min({patience, deadline, deadline_after(kTooManyPatience)});
      if (Clock::now() < patience) {
        const std::timespec pause = to_timespec(kTooManyPause);
        ::nanosleep(&pause, nullptr);
        continue;
      }
    }
    const char* hint = error == ETOOMANYREFS
                           ? " (too many descriptors are on their way; raise ulimit -n, or let the "
                             "receiver catch up)"
                           : "";
    throw SystemError(fmt::format("send a message with {} descriptors{}", num_fds, hint), error);
  }
}

/// The size of the next packet, which stays in the queue.
struct Peek {
  RecvOutcome outcome;
  std::size_t bytes;
};

Peek peek_packet(int socket, Deadline deadline) {
  for (;;) {
    std::byte first;
    const ssize_t bytes = ::recv(socket, &first, 1, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    if (bytes > 0) return {RecvOutcome::kMessage, static_cast<std::size_t>(bytes)};
    if (bytes == 0) return {RecvOutcome::kClosed, 0};
    const int error = errno;
    if (error == EINTR) continue;
    // The other end was closed with messages unread. The kernel says so once, before it hands out
    // what that end had sent.
    if (error == ECONNRESET) continue;
    if (is_closed(error)) return {RecvOutcome::kClosed, 0};
    if (error != EAGAIN && error != EWOULDBLOCK) throw SystemError("receive a message", error);
    if (!poll_one(socket, POLLIN, deadline)) return {RecvOutcome::kTimedOut, 0};
  }
}

void read_memfd_payload(Message& message, std::uint64_t payload_bytes) {
  if (message.fds.empty()) {
    throw Error("received a message whose payload is in shared memory, without its descriptor");
  }
  const Memfd memfd = Memfd::open(std::move(message.fds.front()));
  message.fds.erase(message.fds.begin());
  if (memfd.bytes() != payload_bytes) {
    throw Error(
        fmt::format("received a message that announces {} bytes with {} bytes of shared memory",
                    payload_bytes, memfd.bytes()));
  }
  // Whoever sends much has as much: memory that is not there costs a sender nothing.
  struct stat status{};
  constexpr std::size_t kStatBlock = 512;
  if (::fstat(memfd.fd(), &status) != 0 ||
      static_cast<std::size_t>(status.st_blocks) < payload_bytes / kStatBlock) {
    throw Error(
        fmt::format("received a message of {} bytes without the memory for them", payload_bytes));
  }
  const Mapping content = Mapping::map(memfd, "message", Mapping::Access::kReadOnly);
  message.bytes.assign(content.data(), content.data() + content.size());
}

}  // namespace

PacketAddress abstract_address(const std::string& name) {
  PacketAddress address;
  if (name.empty() || name.size() + 1 > sizeof address.name.sun_path) {
    throw Error(fmt::format("a socket cannot have a name of {} bytes", name.size()));
  }
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());  // after the 0: abstract
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

SendOutcome send_packet(int socket, const PacketContent& content, Deadline deadline,
                        const PacketAddress* to) {
  if (content.fds.size() > kMaxPacketFds) {
    throw InvalidArgument(fmt::format("a message with {} descriptors; at most {} go into one",
                                      content.fds.size(), kMaxPacketFds));
  }
  const std::span<const std::byte> bytes = content.bytes;
  FrameHeader header{kFrameMagic, FrameKind::kInline, bytes.size(), content.tag};
  std::array<iovec, 2> parts{
      {{&header, sizeof header}, {const_cast<std::byte*>(bytes.data()), bytes.size()}}};
  msghdr packet{};
  packet.msg_iov = parts.data();
  packet.msg_iovlen = parts.size();
  if (to != nullptr) {
    packet.msg_name = const_cast<sockaddr_un*>(&to->name);
    packet.msg_namelen = to->bytes;
  }
  Memfd memfd;
  std::vector<int> all_fds(content.fds.begin(), content.fds.end());
  if (bytes.size() > content.max_inline_bytes) {
    memfd = Memfd::create_readonly("shoal message", bytes);
    all_fds.insert(all_fds.begin(), memfd.fd());
    header.kind = FrameKind::kMemfd;
    packet.msg_iovlen = 1;
  }
  Ancillary ancillary;
  put_fds(packet, ancillary, all_fds);
  return send_now(socket, packet, all_fds.size(), deadline);
}

RecvOutcome recv_packet(int socket, Message& message, Deadline deadline) {
  message.bytes.clear();
  message.fds.clear();
  message.tag = 0;
  const Peek next = peek_packet(socket, deadline);
  if (next.outcome != RecvOutcome::kMessage) return next.outcome;
  // A packet of another size than ours can have is taken off the queue all the same, and refused
  // below.
  message.bytes.resize(std::min(next.bytes, kMaxPacketBytes) -
                       std::min(next.bytes, sizeof(FrameHeader)));

  FrameHeader header{};
  std::array<iovec, 2> parts{
      {{&header, sizeof header}, {message.bytes.data(), message.bytes.size()}}};
  Ancillary ancillary;
  msghdr packet{};
  packet.msg_iov = parts.data();
  packet.msg_iovlen = parts.size();
  packet.msg_control = &ancillary;
  packet.msg_controllen = sizeof ancillary;
  ssize_t received;
  do {
    received = ::recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) throw SystemError("receive a message");
  message.fds = take_fds(packet);
  message.tag = header.tag;
  if ((packet.msg_flags & MSG_CTRUNC) != 0) {
    message.fds.clear();  // some of them are of no use, and descriptors are what is short
    throw SystemError("receive all descriptors of a message (raise ulimit -n)", EMFILE);
  }
  const auto total = static_cast<std::size_t>(received);
  if ((packet.msg_flags & MSG_TRUNC) != 0 || total < sizeof header || header.magic != kFrameMagic ||
      (header.kind == FrameKind::kInline && header.payload_bytes != total - sizeof header)) {
    throw Error(
        fmt::format("received a packet of {} bytes that is no message of Shoal", next.bytes));
  }
  if (header.kind == FrameKind::kMemfd) read_memfd_payload(message, header.payload_bytes);
  return RecvOutcome::kMessage;
}

}  // namespace shoal::os
