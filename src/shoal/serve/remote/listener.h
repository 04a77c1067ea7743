// Takes relays of other hosts that know the secret, and has a service of this host answer them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/group/connection/message_server.h"
#include "shoal/serve/remote/remote_messages.h"

namespace shoal::serve {

/// A resource: the thread of a MessageServer, and those of a Guest for each relay.
///
/// Threads: any.
/// Processes: the one that made the service; the others have a Relay.
/// Death: of a relay: its rows are dropped, within kLongestSilence + kBeat. Of this process: the
/// relays see their connections end.
/// Fork: a child holds the sockets, so that the end of this process is then seen by its silence; its
/// destructor and close() do nothing there.
class Listener {
 public:
  struct Options {
    std::string address;  // of the frontend
    std::string host;
    int port = 0;  // 0: a free one
    std::string secret;
    std::string version;  // of Shoal
    Terms terms;          // most_rows and most_under_way are the listener's own
  };

  /// Listens; nobody is let in before start(). Throws as MessageServer.
  explicit Listener(Options options);
  /// As close().
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void start();
  int port() const;

  /// Tells the relays why, and ends the threads. Idempotent.
  void close(const std::string& why) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::serve
