// Where the clients of a model service arrive. It outlives the servers, hands each new client to
// one of them, and tells those that come too late why the service has ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/os/process/making_process.h"
#include "shoal/os/socket/socket.h"
#include "shoal/process/supervise/event_loop.h"
#include "shoal/serve/server_segment.h"

namespace shoal::serve {

/// A resource of the process that made the service.
///
/// Threads: any. A thread of its own (process::EventLoop) accepts connections.
/// Processes: clients and servers connect to address().
/// Invariants: a client waits while there is no server and there may be one later. It goes to the
/// instance that was given the fewest clients. Whoever holds the
/// mutex of the instances waits for nobody: a send that may wait is made without it, and those to one
/// server one after the other.
/// Death: of a server: its clients notice by themselves; the next ones go to another instance, or
/// wait. Of this process: servers and clients see the connection close.
/// Fork: a child must not use it; its destructor does nothing there.
class Frontend {
 public:
  /// Throws SystemError.
  Frontend();
  ~Frontend();
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;

  const std::string& address() const noexcept { return address_; }

  /// Waits until `instance` has had a server for the `generation`-th time (from 1).
  [[nodiscard]] bool wait_ready(std::uint32_t instance, std::uint64_t generation,
                                os::Deadline deadline);
  /// Waits until `instance` has no server.
  [[nodiscard]] bool wait_gone(std::uint32_t instance, os::Deadline deadline);
  /// How many servers `instance` has had.
  std::uint64_t generation(std::uint32_t instance) const;

  /// The servers of `instance` get commands, but no clients, until let_clients_in().
  void hold_clients(std::uint32_t instance);
  void let_clients_in(std::uint32_t instance);

  /// Sends a command to the executor of the server; returns its answer, or nothing when the
  /// deadline passed first. `look` is called every 50 ms meanwhile, without a lock; what it throws
  /// ends the wait. Throws ServiceDied when the server ends before it has answered,
  /// DeadlineExceeded when it takes no command for 5 s.
  ///
  /// `topic`: 0, or for a command that nobody waits for: while its executor is busy, a server keeps
  /// only the newest Server::kMostCommands of a topic, and drops the others without an answer.
  std::optional<std::vector<std::byte>> command(std::uint32_t instance,
                                                std::span<const std::byte> bytes,
                                                os::Deadline deadline,
                                                const std::function<void()>& look = {},
                                                std::uint32_t topic = 0);

  /// The counters of the server of `instance`, also after its end; nullptr before the first server.
  std::shared_ptr<const ServerSegment> segment(std::uint32_t instance) const;

  /// The same of all instances of a service.
  struct Observed {
    std::vector<std::shared_ptr<const ServerSegment>> segments;
    std::uint32_t running = 0;   // servers
    std::uint64_t restarts = 0;  // servers that took the place of another one
  };
  /// Asks the service at `address`, from any process. Throws ServiceDied when there is none,
  /// DeadlineExceeded, and Error when what answers is no service.
  static Observed observe(const std::string& address, os::Deadline deadline);

  /// Tells the servers to end; from now on each client that comes is told `notice`.
  void close(const std::string& notice);
  bool closed() const;

 private:
  /// To a server. Any thread may send; the loop's receives.
  struct Link {
    explicit Link(os::Fd fd) : socket(std::move(fd)) {}
    os::SendOutcome send(std::span<const std::byte> bytes, std::span<const int> fds,
                         os::Deadline deadline) {
      const std::lock_guard lock(sending);
      return socket.send(bytes, fds, deadline);
    }
    os::SeqPacket socket;
    std::mutex sending;
  };
  struct Instance {
    std::shared_ptr<Link> current;  // none while there is no server
    std::shared_ptr<Link> link;     // the same, while it takes clients
    bool held = false;              // it is to get no clients
    std::shared_ptr<const ServerSegment> segment;
    std::uint64_t generation = 0;
    std::uint64_t admitted = 0;  // clients that it was given, for equal shares
    std::map<std::uint64_t, std::optional<std::vector<std::byte>>> answers;  // to those who wait
  };

  void accept_clients();
  void accept_servers();
  void show_segments(Link& observer);
  void greet_server(const std::shared_ptr<Link>& link);
  void hear(std::uint32_t instance, const std::shared_ptr<Link>& link);
  void lose(std::uint32_t instance, const std::shared_ptr<Link>& link);
  std::uint64_t least_admitted_beside(std::uint32_t number) const;
  void hand_out();
  void send_end_notices();
  static bool admit(Link& link, const os::Fd& client);

  const os::MakingProcess maker_;
  const std::string address_;
  os::Fd clients_;
  os::Fd servers_;
  std::mutex handing_out_;    // held by the one who hands out; before mutex_
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::map<std::uint32_t, Instance> instances_;
  std::deque<os::Fd> waiting_;  // clients
  std::uint64_t next_command_ = 1;
  bool closed_ = false;
  std::string end_notice_;
  process::EventLoop* const loop_;  // owned; a forked child, which has no such thread, leaves it
};

}  // namespace shoal::serve
