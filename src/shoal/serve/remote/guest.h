// What a relay elsewhere asks, asked here: an ordinary client of the service, with a thread for each queue.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "shoal/serve/client.h"
#include "shoal/serve/remote/remote_messages.h"

namespace shoal::serve {

/// A resource. Its threads: one opens queues; one for each queue submits batches and waits for their
/// replies. They share one Client, so that the service sees one, whose recurrent states are one set.
///
/// Threads: receive() and the destructor one, the rest any.
/// Processes: the service's own, or another of its host.
/// Invariants: a batch gets one answer, in which every row has its reply. No more batches of a queue
/// are under way than the terms say. A kind of rows has one queue, and one queue is opened at a time.
/// Death: of the server: the relay is told (kEnded), once. Of the relay: whoever has the guest
/// destroys it; rows that no batch has taken are not computed.
/// Fork: a child must not use it.
class Guest {
 public:
  /// Called by its threads; must not wait.
  using Send = std::function<void(std::vector<std::byte>)>;

  /// Asks the service at `address`, a frontend's. Throws SystemError where no thread can be had.
  Guest(std::string address, const Terms& terms, Send send);
  /// Joins the threads, which end() makes short.
  ~Guest();
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  /// A message of the relay; returns soon. Throws Error for one that no relay sends.
  void receive(std::vector<std::byte>& message);
  /// Asks the threads to end; returns at once. Idempotent.
  void end() noexcept;
  /// Whether they have.
  bool has_ended() const noexcept { return running_.load(std::memory_order_acquire) == 0; }

  /// That are open.
  std::size_t queues() const;
  std::uint64_t rows() const noexcept { return rows_.load(std::memory_order_relaxed); }

 private:
  struct Asked {
    RemoteBatch batch;
    Request request;
  };
  struct GuestQueue {
    std::uint32_t number = 0;
    ClientQueue* at = nullptr;
    RequestKind kind;
    std::deque<std::vector<std::byte>> inbox;  // under the mutex
    std::uint32_t under_way = 0;               // in the inbox and beyond; under the mutex
    std::deque<Asked> asked;                   // its thread's
    std::thread thread;
  };
  struct Opening {
    std::uint32_t queue = 0;
    Open request;
  };

  template <class Body>
  void run(const char* name, Body body) noexcept;
  void open_queues();
  void take_opening(Opening opening);
  void open_queue(const Opening& opening);
  void start(std::unique_ptr<GuestQueue> queue);
  void send_opening_answer(RemoteKind kind, std::uint32_t queue,
                           std::span<const std::byte> encoded);
  void answer(GuestQueue& queue);
  bool submit_new(GuestQueue& queue);
  void submit(GuestQueue& queue, std::span<const std::byte> message);
  bool give_out(GuestQueue& queue);
  void reply(GuestQueue& queue, Asked& asked);
  void need_going_on() const;

  const std::string address_;
  const Terms terms_;
  const Send send_;
  std::atomic<bool> ending_ = false;
  std::atomic<int> running_ = 0;         // threads
  std::atomic<std::uint64_t> rows_ = 0;  // asked about
  std::atomic<bool> told_end_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Opening> opening_;  // for the thread that opens queues
  bool opens_ = false;              // from its coming until it is answered
  std::map<std::uint32_t, std::unique_ptr<GuestQueue>> queues_;

  std::mutex client_mutex_;         // whoever has it uses the client
  std::unique_ptr<Client> client_;  // made by the thread that opens queues
  std::thread opener_;
};

}  // namespace shoal::serve
