// The channel between a worker and its parent, whatever carries its messages.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/os/socket/socket.h"

namespace shoal::process {

/// One end of a two-way channel of messages that may carry descriptors; a resource.
///
/// Threads: one sender and one receiver at a time.
/// Processes: one at each end.
/// Death: when the other process has ended, or has closed its end, recv() returns what that process
/// sent before, and then kClosed; send() returns kClosed.
/// Fork: a child must not use its copy; it calls abandon().
class Channel {
 public:
  /// What carries the messages. Each member does what the Channel's of the same name does.
  class Carrier {
   public:
    virtual ~Carrier() = default;
    virtual os::SendOutcome send(std::span<const std::byte> bytes, std::span<const int> fds,
                                 os::Deadline deadline) = 0;
    virtual os::RecvOutcome recv(os::Message& message, os::Deadline deadline) = 0;
    virtual bool hung_up() const = 0;
    virtual void shutdown() noexcept = 0;
  };

  Channel() noexcept = default;
  /// A channel over a socket of its own.
  explicit Channel(os::SeqPacket socket);
  explicit Channel(std::unique_ptr<Carrier> carrier) noexcept : carrier_(std::move(carrier)) {}

  /// Both ends of a new channel over a pair of sockets.
  static std::pair<Channel, Channel> pair();

  /// Sends one message; the descriptors are borrowed. Waits while too much of what was sent before
  /// is unread. Throws what os::SeqPacket::send() throws.
  [[nodiscard]] os::SendOutcome send(std::span<const std::byte> bytes,
                                     std::span<const int> fds = {},
                                     os::Deadline deadline = os::kNoDeadline);

  /// Receives one message into `message`, which is overwritten. With a deadline in the past it
  /// never waits. Throws what os::SeqPacket::recv() throws.
  [[nodiscard]] os::RecvOutcome recv(os::Message& message, os::Deadline deadline = os::kNoDeadline);

  /// Whether the other end is closed or gone; never waits. Messages from it may still be unread.
  bool hung_up() const { return !carrier_ || carrier_->hung_up(); }

  /// Ends both directions for both sides; whoever waits in recv() returns kClosed.
  void shutdown() noexcept {
    if (carrier_) carrier_->shutdown();
  }
  void close() noexcept { carrier_.reset(); }

  /// Forgets the channel without closing it: for a forked child's copy of its parent's channel.
  void abandon() noexcept { static_cast<void>(carrier_.release()); }

  /// Whether it is open at this end.
  explicit operator bool() const noexcept { return carrier_ != nullptr; }

 private:
  std::unique_ptr<Carrier> carrier_;
};

}  // namespace shoal::process
