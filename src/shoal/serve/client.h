// A client of a model service: it sends rows and gets rows.
//
//   std::unique_ptr<Client> client = Client::connect(address);
//   ClientQueue& queue = client->open(kind, example);     // once for each kind of row
//   Request request = client->submit(queue, {.leaves = rows, .count = 1});
//   (void)client->wait(request);
//   client->check(request);                             // throws where a row has no reply
//   const std::byte* reply = client->output(request, 0, 0);
//   client->release(request);                           // `reply` is invalid from here on
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/os/process/pidfd.h"
#include "shoal/os/socket/socket.h"
#include "shoal/serve/client_slots.h"
#include "shoal/serve/messages.h"
#include "shoal/serve/request_queue.h"
#include "shoal/serve/server_segment.h"
#include "shoal/sync/spin_policy.h"

namespace shoal::serve {

/// Whose a row is, where a request has those of several.
struct RowOrigin {
  std::int32_t env = 0;
  bool reset = false;
  os::Deadline deadline = os::kNoDeadline;
  std::uint64_t submitted_ns = 0;  // as os::now_ns(); 0: now
};

/// Rows to be computed; borrows them.
struct Rows {
  /// For each array: its first row. The other rows follow it, each of the queue's leaf_bytes().
  std::span<const std::byte* const> leaves;
  std::uint32_t count = 1;
  std::int32_t env = 0;  // whose recurrent state the rows use; a number of this client's
  bool reset = false;    // that state begins anew
  os::Deadline deadline = os::kNoDeadline;
  bool wait_for_room = true;                // false: OverCapacity when the open batch is full
  std::span<const RowOrigin> origins = {};  // of `count` rows, in the place of env and reset
};

/// A request queue that this client has opened, with the client's slots there. A client has several
/// for one queue where more rows were to be in flight than the first one has slots. One with nothing
/// in flight goes when the server's answer about a newer one is taken, in a later open().
struct ClientQueue {
  std::shared_ptr<RequestQueue> queue;
  std::shared_ptr<ClientSlots> slots;
  RowSpec outputs;
  std::vector<std::byte> structure;    // of a reply, for the face above
  std::vector<std::uint32_t> free;     // slots
  std::vector<std::uint32_t> leaving;  // slots of cancelled rows that are being computed
};

/// Rows in flight, to be given to wait() or cancel() of the client that made it. A value, of no use
/// after release().
struct Request {
  /// Where the reply to one row comes.
  struct Row {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
  };
  ClientQueue* at = nullptr;
  std::vector<Row> rows;
  os::Deadline deadline = os::kNoDeadline;
};

/// A connection to one server of a service; a resource.
///
/// Threads: one at a time; alive() any.
/// Processes: any of the same user as the service.
/// Invariants: the server answers what it was asked for in that order, so an answer that nobody has
/// waited for is known by its place.
/// Death: of the server: every call throws ServiceDied, soon after kSlice. Of this process: its
/// rows are dropped (Server).
/// Fork: a child must not use it; it may destroy it.
class Client {
 public:
  static constexpr std::chrono::milliseconds kSlice{20};

  /// Waits until a server accepts it. `idle` is called every kSlice while connect(), open() or
  /// submit() waits; what it throws ends the wait. Throws DeadlineExceeded, OverCapacity where the
  /// server takes no more clients, and ServiceDied, with what is known of the service's end.
  static std::unique_ptr<Client> connect(const std::string& address,
                                         os::Deadline deadline = os::kNoDeadline,
                                         std::function<void()> idle = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  std::span<const std::string> models() const noexcept { return hello_.models; }
  /// The number of `name` among the models. Throws InvalidArgument naming those there are.
  std::uint32_t model(std::string_view name) const;

  /// The newest of this client's queues of this kind that has at least `slots` free slots. Where
  /// there is none, the server is asked for one, which answers between two batches. `example` is
  /// one row, array by array; the model is tried with it where no client has sent such rows before.
  /// A wait that ends early leaves the answer to the next call. Throws ModelError, InvalidArgument,
  /// OverCapacity, ServiceDied, DeadlineExceeded.
  ClientQueue& open(const RequestKind& kind, std::span<const std::byte* const> example,
                    std::uint32_t slots = 1, os::Deadline deadline = os::kNoDeadline);
  /// The same, or nullptr where open() would have to ask the server.
  ClientQueue* find(const RequestKind& kind, std::uint32_t slots = 1) noexcept;
  /// As open(), but without waiting, for a kind that this client knows(): throws OverCapacity until
  /// the server's answer is there.
  ClientQueue& open_now(const RequestKind& kind, std::span<const std::byte* const> example,
                        std::uint32_t slots = 1);
  /// Whether this client has opened a queue of this kind.
  bool knows(const RequestKind& kind) const noexcept;

  /// Writes the rows into open batches; `at` must have rows.count free slots. Throws OverCapacity,
  /// DeadlineExceeded, ServiceDied, and then none of the rows is in flight.
  Request submit(ClientQueue& at, const Rows& rows);

  /// Whether all replies are there; never blocks.
  bool done(const Request& request) const noexcept;

  /// Waits for all replies; false when `until` passed first. Throws ServiceDied, and after the
  /// request's own deadline DeadlineExceeded: then it is cancelled.
  [[nodiscard]] bool wait(Request& request, os::Deadline until = os::kNoDeadline);

  /// After wait(): throws ModelError or DeadlineExceeded where that is the reply to a row.
  void check(const Request& request) const;
  ReplyStatus status(const Request& request, std::uint32_t row) const noexcept;
  /// Where status() is kModelError: what FailureText decodes.
  std::string_view error(const Request& request, std::uint32_t row) const noexcept;
  std::uint64_t version(const Request& request, std::uint32_t row) const noexcept;
  const std::byte* output(const Request& request, std::uint32_t row,
                          std::size_t leaf) const noexcept;

  /// After wait(): the slots may be used again.
  void release(Request& request) noexcept;
  /// Drops the replies; rows that no batch has taken yet are not computed.
  void cancel(Request& request) noexcept;

  /// Whether the server still runs and the connection is whole; asks the kernel.
  bool alive() const;
  /// Throws ServiceDied, with what is known of the end, unless alive().
  void need_alive() const;

  /// For who waits by at.slots->done() itself: no row comes before a reply does. wait() says so.
  void announce_wait(ClientQueue& at) noexcept;

 private:
  Client() = default;
  /// A queue that the server has been asked for.
  struct Owed {
    RequestKind kind;
    std::uint32_t slots = 0;
  };

  void greet(os::Deadline deadline);
  void receive(os::Message& message, os::Deadline deadline);
  bool is_owed(const RequestKind& kind, std::uint32_t slots) const noexcept;
  void ask_for(const RequestKind& kind, std::span<const std::byte* const> example,
               std::uint32_t slots, os::Deadline deadline);
  std::optional<Refused> take_answer(os::Deadline deadline);
  void take_answers(const RequestKind& kind);
  ClientQueue& add_queue(const RequestKind& kind, os::Message message);
  std::uint32_t write_rows(ClientQueue& at, const Rows& rows, Request& request,
                           std::uint32_t first);
  bool write_row(ClientQueue& at, std::uint32_t buffer, std::uint32_t row, const Rows& rows,
                 std::uint32_t index, Request::Row reply_to);
  void wait_for_buffer(ClientQueue& at, const Rows& rows, std::uint32_t seen);
  void reclaim(ClientQueue& at) noexcept;
  void leave_idle(const RequestKind& kind, const ClientQueue* kept);
  [[noreturn]] void throw_died() const;
  [[noreturn]] static void throw_too_many(std::size_t rows, std::size_t may_be);
  sync::SpinPolicy& spin();

  std::string address_;
  os::SeqPacket socket_;
  os::PidFd server_;
  ServerSegment segment_;
  Hello hello_;
  std::vector<std::unique_ptr<ClientQueue>> queues_;  // newest last
  std::deque<Owed> owed_;                             // the one that is answered next comes first
  sync::SpinPolicy spin_;
  std::uint32_t spin_group_ = 0;
  int cpus_ = 1;
  std::function<void()> idle_;
};

}  // namespace shoal::serve
