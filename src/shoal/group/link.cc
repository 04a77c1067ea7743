#include "shoal/group/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "shoal/os/error.h"
#include "shoal/os/poll.h"

namespace shoal::group {
namespace {

constexpr std::size_t kMostAtOnce = 64 * 1024;

}  // namespace

bool Link::send(std::span<const std::byte> bytes, os::Deadline deadline, std::span<const int> fds) {
  if (auto* channel = std::get_if<os::SeqPacket>(&socket_))
    return channel->send(bytes, fds, deadline) == os::SendOutcome::kSent;
  SHOAL_CHECK(fds.empty(), "descriptors go by Unix sockets");
  const auto length = static_cast<std::uint32_t>(bytes.size());
  std::vector<std::byte> frame(sizeof length + bytes.size());
  std::memcpy(frame.data(), &length, sizeof length);
  if (!bytes.empty()) std::memcpy(frame.data() + sizeof length, bytes.data(), bytes.size());
  return std::get<os::Stream>(socket_).send(frame, deadline) == os::StreamOutcome::kDone;
}

os::RecvOutcome Link::recv(os::Message& message, os::Deadline deadline) {
  if (auto* channel = std::get_if<os::SeqPacket>(&socket_)) return channel->recv(message, deadline);
  auto& stream = std::get<os::Stream>(socket_);
  message.fds.clear();
  while (const std::size_t missing = missing_bytes()) {
    // No byte more than the message: what follows on a data connection is none. And no more memory
    // than for what has come: who speaks there need not be a rank.
    const std::size_t before = received_.size();
    received_.resize(before + std::min(missing, kMostAtOnce));
    std::size_t got = 0;
    const auto outcome = stream.recv_some(std::span(received_).subspan(before), got);
    received_.resize(before + got);
    if (outcome == os::StreamOutcome::kClosed) return os::RecvOutcome::kClosed;
    if (outcome == os::StreamOutcome::kTimedOut && !os::poll_one(stream.fd(), POLLIN, deadline))
      return os::RecvOutcome::kTimedOut;
  }
  message.bytes.assign(received_.begin() + sizeof(std::uint32_t), received_.end());
  received_.clear();
  return os::RecvOutcome::kMessage;
}

std::size_t Link::missing_bytes() const {
  std::uint32_t length = 0;
  if (received_.size() < sizeof length) return sizeof length - received_.size();
  std::memcpy(&length, received_.data(), sizeof length);
  if (length > longest_)
    throw Error(
        fmt::format("received a message of {} bytes where {} is the most: another program speaks "
                    "there",
                    length, longest_));
  return sizeof length + length - received_.size();
}

int Link::fd() const noexcept {
  return std::visit([](const auto& socket) { return socket.fd(); }, socket_);
}

}  // namespace shoal::group
