// The end of a connection that has come to a MessageServer.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shoal/group/connection/hello.h"
#include "shoal/group/connection/message_stream.h"
#include "shoal/group/member.h"
#include "shoal/os/clock.h"
#include "shoal/os/eventfd.h"
#include "shoal/os/process/making_process.h"

namespace shoal::group {

/// A resource: one thread, which sends, receives, and says each kBeat that it is there.
///
/// Threads: any may send(), one recv(); the rest one.
/// Processes: one end; the other is a MessageServer's.
/// Death: of the server: recv() and send() throw ConnectionLost, within kLongestSilence + kBeat. Of
/// this process: the server sees the connection end.
/// Fork: a child holds the sockets, so that the end of this process is then seen by its silence; its
/// destructor and leave() do nothing there.
class MessageClient {
 public:
  struct Options {
    std::string host;
    int port = 0;
    std::string secret;
    std::string who = "the server";                               // it is, for messages
    Hello hello;                                                  // version, purpose and run
    std::chrono::nanoseconds timeout = std::chrono::seconds(10);  // to reach it
    std::size_t longest = 0;                                      // message that it sends
    /// What the server's owner says first: what is held before anybody has proved anything.
    std::size_t longest_welcome = std::size_t{1} << 20;
    /// Called twice a second at least while it is reached, but for the time in which the name of its
    /// host is looked up; what it throws ends the wait.
    std::function<void()> look = {};
    std::function<void()> came = {};  // called by its thread when recv() has something to return
  };

  /// Connects. Throws InvalidArgument without a secret beyond the loopback, TimedOut where nobody
  /// answers there, os::UnknownHost where its name is unknown all the time, Error where it is
  /// refused, with the reason.
  explicit MessageClient(Options options);
  /// As leave().
  ~MessageClient();
  MessageClient(const MessageClient&) = delete;
  MessageClient& operator=(const MessageClient&) = delete;

  /// What the server's owner has told it.
  const std::vector<std::byte>& content() const noexcept { return admission_.content; }
  /// Of the messages that come from now on.
  void set_longest(std::size_t bytes) noexcept { longest_.store(bytes, std::memory_order_relaxed); }

  /// Returns at once. Throws as recv().
  void send(std::vector<std::byte> message);

  enum class Got { kMessage, kNothing, kFarewell };
  /// The next message, in the order in which they were sent; kNothing at `deadline`; kFarewell once
  /// the server has taken leave. Throws ConnectionLost; Error where the server has sent it away,
  /// with the reason.
  [[nodiscard]] Got recv(std::vector<std::byte>& message, os::Deadline deadline);
  /// Whether recv() will have nothing more but how it ended.
  bool has_ended() const;
  /// After kFarewell.
  Farewell farewell() const;

  /// Takes leave and ends the thread. Idempotent.
  void leave(const Farewell& farewell) noexcept;

 private:
  void run() noexcept;
  void talk();
  void take_in();
  bool take(std::uint8_t kind, std::vector<std::byte>& message);
  void end(std::exception_ptr why);
  std::exception_ptr lost(const std::string& cause) const;

  const os::MakingProcess maker_;
  Options options_;
  Admission admission_;
  std::optional<MessageStream> stream_;  // the thread's, which closes it at its end
  std::atomic<std::size_t> longest_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::byte>> came_, going_;
  std::optional<Farewell> farewell_;
  std::exception_ptr failure_;
  bool ended_ = false;  // the connection has
  Farewell leave_;
  std::atomic<bool> ending_ = false;
  os::EventFd wake_;
  std::thread thread_;
};

}  // namespace shoal::group
