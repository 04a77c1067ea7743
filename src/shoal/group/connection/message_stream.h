// Messages over TCP for a thread that must not wait: what goes is queued, what comes is put together.
//
//   0                                          8
//   | bytes of the message, little endian      | the message …
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/os/socket/stream.h"

namespace shoal::group {

/// A message that may go to several.
using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

/// A resource.
///
/// Threads: one at a time.
/// Processes: one end; the other is on another host, perhaps.
/// Death: as Stream: what the other end sent before is received, then kClosed.
class MessageStream {
 public:
  explicit MessageStream(os::Stream stream)
      : stream_(std::move(stream)), heard_(os::Clock::now()) {}

  /// Longer ones are refused. Memory grows with what has come, not with what was announced.
  void set_longest(std::size_t bytes) noexcept { longest_ = bytes; }

  void queue(SharedBytes message) { waiting_.push_back(std::move(message)); }
  void queue(std::vector<std::byte> message) {
    queue(std::make_shared<const std::vector<std::byte>>(std::move(message)));
  }
  /// Not sent yet.
  std::size_t waiting() const noexcept { return waiting_.size(); }

  /// Sends what the kernel has room for; false: the other end has gone.
  [[nodiscard]] bool flush();

  enum class Got { kMessage, kNothing, kClosed };
  /// What is there; of a long message some at a time. Throws Error for one that is too long.
  [[nodiscard]] Got recv(std::vector<std::byte>& message);

  /// Nothing goes any more; the other end receives what went before, and then kClosed.
  void end_sending() noexcept { stream_.end_sending(); }
  /// Reads some of what is there, for nobody; false: the other end has gone. No recv() follows.
  [[nodiscard]] bool drop_received();

  /// When the last byte came.
  os::Clock::time_point heard() const noexcept { return heard_; }
  void count_as_heard(os::Clock::time_point now) noexcept { heard_ = now; }
  std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }
  std::uint64_t received_bytes() const noexcept { return received_bytes_; }

  int fd() const noexcept { return stream_.fd(); }
  /// For poll().
  short events() const noexcept;

 private:
  using Length = std::array<std::byte, sizeof(std::uint64_t)>;

  os::Stream stream_;
  std::size_t longest_ = std::size_t{64} << 10;
  std::deque<SharedBytes> waiting_;
  std::size_t sent_ = 0;  // of the first that waits, its length before it included
  Length length_{};       // of the message that is coming
  std::size_t length_bytes_ = 0;
  std::vector<std::byte> coming_;
  os::Clock::time_point heard_;
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t received_bytes_ = 0;
};

}  // namespace shoal::group
