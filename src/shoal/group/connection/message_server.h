// Takes connections of programs that know the secret, and passes messages to and from them.
//
// One thread does all of it and waits for none of them: what a slow one does not take is queued, and
// who queues has to bound it. One that ends is seen at once; one that is stopped, or whose host is
// gone, is silent, and after kLongestSilence counts as lost.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "shoal/group/connection/hello.h"
#include "shoal/group/connection/message_stream.h"
#include "shoal/os/eventfd.h"
#include "shoal/os/process/making_process.h"
#include "shoal/os/socket/stream.h"

namespace shoal::group {

/// A resource: one thread.
///
/// Threads: wake() and totals any; send() and waiting() those calls of the Owner that the server
/// makes; the rest one.
/// Processes: those that connect have a MessageClient.
/// Death: of a client: Owner::lose(), within kLongestSilence + kBeat. Of this process: the clients
/// see their connections end.
/// Fork: a child holds the sockets, so that the end of this process is then seen by its silence; its
/// destructor and close() do nothing there.
class MessageServer {
 public:
  using Id = std::uint64_t;  // of a client; never used again

  /// Who uses it. All are called by the server's thread, and have to return soon.
  class Owner {
   public:
    virtual ~Owner() = default;
    /// What a client that knows the secret is told. Throws Error: it is refused, and told the text.
    virtual std::vector<std::byte> admit(Id id, const Hello& hello) = 0;
    /// A message of its own kind. Throws Error: the client is sent away, and told the text.
    virtual void receive(Id id, std::vector<std::byte>& message) = 0;
    /// An admitted client has gone: `cause` reads as in "its connection has ended"; `left`: with a
    /// farewell, and nothing had gone wrong.
    virtual void lose(Id id, const std::string& cause, bool left) = 0;
    /// After each wake(), and after each of the above.
    virtual void look() = 0;
  };

  struct Options {
    std::string host;  // an address of this machine
    int port = 0;      // 0: a free one
    std::string secret;
    std::size_t longest = 0;  // message of an admitted client
  };

  /// Listens; nobody is let in before start(). Throws InvalidArgument without a secret beyond the
  /// loopback, Error for a port that is taken or an address of another machine.
  explicit MessageServer(Options options);
  /// As close().
  ~MessageServer();
  MessageServer(const MessageServer&) = delete;
  MessageServer& operator=(const MessageServer&) = delete;

  /// Borrows the owner until close(). Once.
  void start(Owner& owner);
  int port() const noexcept { return port_; }

  void wake() noexcept { wake_.notify(); }
  void send(Id id, SharedBytes message);
  /// Messages that a client has not taken yet; 0 for one that has gone.
  std::size_t waiting(Id id) const;

  /// Takes leave of all, ends the thread, and gives the port back. Idempotent.
  void close(const Farewell& farewell) noexcept;

  std::uint64_t sent_bytes() const noexcept { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t received_bytes() const noexcept {
    return received_.load(std::memory_order_relaxed);
  }

 private:
  struct Client {
    MessageStream stream;
    Challenge challenge;
    os::Clock::time_point since;
    bool admitted = false;
    bool gone = false;
  };

  void run();
  void turn();
  void beat();
  void let_in();
  void hear(Id id, Client& client);
  void take(Id id, Client& client, std::vector<std::byte>& message);
  void drop(Id id, Client& client, const std::string& cause, bool left);
  void send_away(Id id, Client& client, const std::string& why);
  void look_for_silence(os::Clock::time_point now);
  bool flush(Client& client);
  void flush_all();
  void say_farewell();
  void see_off(Client& client);

  const os::MakingProcess maker_;
  const Options options_;
  std::optional<os::StreamListener> listener_;  // until close()
  const int port_;
  Owner* owner_ = nullptr;
  std::map<Id, Client> clients_;  // the thread's
  std::vector<std::byte> message_;
  Id next_ = 1;
  os::Clock::time_point next_beat_{};
  os::Clock::time_point looked_{};
  os::Clock::time_point accept_again_{};
  Farewell farewell_;  // before ending_
  std::atomic<bool> ending_ = false;
  std::atomic<std::uint64_t> sent_ = 0;
  std::atomic<std::uint64_t> received_ = 0;
  os::EventFd wake_;
  std::thread thread_;
};

}  // namespace shoal::group
