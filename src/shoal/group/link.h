// A connection to another rank on which messages go: a Unix channel on one host, TCP between hosts.
//
// By TCP a message is its length (4 bytes, little endian) and its bytes.
#pragma once

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/os/socket/socket.h"
#include "shoal/os/socket/stream.h"

namespace shoal::group {

/// A resource.
///
/// Threads: one sender and one receiver at a time.
/// Processes: one end; the other is another rank's.
/// Death: as SeqPacket and Stream: what was sent before is received, then kClosed.
class Link {
 public:
  /// Longer ones are refused: they are none of ours.
  static constexpr std::size_t kMaxMessage = 64U << 20;
  /// Enough for a greeting: of who has not proved to be a rank.
  static constexpr std::size_t kMaxOfStranger = 64U << 10;

  explicit Link(os::SeqPacket channel) : socket_(std::move(channel)) {}
  explicit Link(os::Stream stream) : socket_(std::move(stream)) {}

  /// Whether all of it has gone out by `deadline`. Descriptors go by Unix channels alone.
  bool send(std::span<const std::byte> bytes, os::Deadline deadline, std::span<const int> fds = {});
  /// A deadline in the past makes it a look. Throws Error for what is none of our messages.
  [[nodiscard]] os::RecvOutcome recv(os::Message& message, os::Deadline deadline);

  /// What is refused from now on, by TCP: longer messages.
  void set_longest(std::size_t bytes) noexcept { longest_ = bytes; }

  /// For poll().
  int fd() const noexcept;
  bool is_remote() const noexcept { return std::holds_alternative<os::Stream>(socket_); }
  /// The TCP connection, on which no messages go any more; what follows the last one is still there.
  os::Stream take_stream() { return std::move(std::get<os::Stream>(socket_)); }

 private:
  /// Of the message under way, by TCP.
  std::size_t missing_bytes() const;

  std::variant<os::SeqPacket, os::Stream> socket_;
  std::vector<std::byte> received_;  // by TCP, of the message under way
  std::size_t longest_ = kMaxMessage;
};

/// The other end, in the tree of ranks.
struct Neighbour {
  int rank;
  Link link;
};

}  // namespace shoal::group
