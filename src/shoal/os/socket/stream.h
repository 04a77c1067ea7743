// Bytes to a process that may be on another host: a TCP connection, and the socket that waits for
// connections.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/os/fd.h"

namespace shoal::os {

/// A host's name leads to no address, now. Another time it may.
class UnknownHost : public Error {
 public:
  using Error::Error;
};

enum class StreamOutcome { kDone, kTimedOut, kClosed };

/// A connected TCP socket; a resource.
///
/// Threads: one sender and one receiver at a time; any may shutdown().
/// Death: when the peer has ended, recv() returns what was sent before, and then kClosed; send()
/// returns kClosed. No SIGPIPE. A host that is gone says nothing.
class Stream {
 public:
  Stream() noexcept = default;
  /// Takes over a connected socket.
  explicit Stream(Fd fd);

  /// Nothing where nobody listens there, the host does not answer, or `deadline` passed; each of its
  /// addresses that are left gets the same share of the time. `look` is called five times a second
  /// while an address is tried, not while a name is looked up; what it throws ends the attempt.
  /// Throws UnknownHost.
  static std::optional<Stream> connect(const std::string& host, int port, Deadline deadline,
                                       const std::function<void()>& look = {});

  /// All of `bytes`, or how far it came is unknown.
  [[nodiscard]] StreamOutcome send(std::span<const std::byte> bytes, Deadline deadline);
  [[nodiscard]] StreamOutcome recv(std::span<std::byte> bytes, Deadline deadline);

  /// As much of `bytes` as goes without waiting; kTimedOut where nothing does.
  [[nodiscard]] StreamOutcome send_some(std::span<const std::byte> bytes, std::size_t& sent);
  /// What is there, of at most bytes.size() bytes; kTimedOut where nothing is.
  [[nodiscard]] StreamOutcome recv_some(std::span<std::byte> bytes, std::size_t& received);

  /// Nothing is sent any more; the peer receives what was sent before, and then kClosed.
  void end_sending() noexcept;
  /// Ends both directions; whoever waits returns kClosed.
  void shutdown() noexcept;

  /// The number of the other side's host, as connect() takes it.
  std::string peer_address() const;

  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }

 private:
  Fd fd_;
};

/// A socket that connections come to; a resource.
///
/// Threads: one at a time.
class StreamListener {
 public:
  /// Of `port` (0: a free one), on the loopback alone or on all addresses. Nothing where the port
  /// is taken. Throws SystemError.
  static std::optional<StreamListener> bind(bool loopback, int port);
  /// The same, on the address of `host`, which is this machine's; "0.0.0.0" and "::" are all. Throws
  /// Error for another machine's, SystemError.
  static std::optional<StreamListener> bind_host(const std::string& host, int port);

  int port() const;
  /// For poll(): readable when there is a connection.
  int fd() const noexcept { return fd_.get(); }
  /// Nothing when `deadline` passed first.
  std::optional<Stream> accept(Deadline deadline);

 private:
  explicit StreamListener(Fd fd) noexcept : fd_(std::move(fd)) {}
  Fd fd_;
};

/// Whether all addresses of `host` are this machine's loopback. Throws Error for a host that has no
/// address.
bool is_loopback(const std::string& host);

}  // namespace shoal::os
