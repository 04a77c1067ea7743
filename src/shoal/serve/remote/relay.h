// A server of a local service whose models are those of a service elsewhere: it passes batches on, and
// hands the replies to its clients.
//
//   Frontend frontend;
//   Relay relay({.address = frontend.address(), .host = "node1", .port = 7000, .secret = secret});
//   // here: clients of frontend.address() are answered, until relay.ended()
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "shoal/serve/remote/remote_messages.h"

namespace shoal::serve {

/// A resource: one connection, and a thread that is the executor of a Server.
///
/// Threads: any.
/// Processes: the clients are those of this host; the other end is a Listener's.
/// Invariants: of a queue's batches, Terms::most_under_way are under way. A row that is lost with
/// the connection is answered by nobody.
/// Death: of the distant service, of its server, or of the connection: the Server here ends, and its
/// clients see that; the frontend decides what follows. Known within kLongestSilence + kBeat.
/// Fork: a child must not use it; its destructor and close() do nothing there.
class Relay {
 public:
  struct Options {
    std::string address;  // of the local frontend
    std::uint32_t instance = 0;
    std::string host;
    int port = 0;
    std::string secret;
    std::string version;                                          // of Shoal
    std::chrono::nanoseconds timeout = std::chrono::seconds(10);  // to reach the service
    std::function<void()> look = {};                              // as of MessageClient
  };

  /// Connects, and takes clients from here on. Throws as MessageClient, and ServiceDied where the
  /// local frontend has ended.
  explicit Relay(Options options);
  /// As close().
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const Terms& terms() const noexcept;
  /// Why it takes no clients any more; empty while it does, and where the frontend has closed.
  std::string end_reason() const;
  /// Ends the thread, and returns when it has ended. Idempotent.
  void close() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::serve
