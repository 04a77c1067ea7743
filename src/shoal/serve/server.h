// One instance of a model service: it collects the requests of its clients into batches, and gives
// the replies back. Whoever calls next() is its executor and computes the replies: in Shoal, that
// is Python.
//
//   Server server({.address = address, .models = {{.name = "segment", .max_batch = 64}}});
//   for (Work work = server.next(); !std::holds_alternative<ServerEnd>(work); work = server.next()) {
//     if (auto* batch = std::get_if<Batch>(&work)) {
//       // here: for each row read input(), write output(), and call reply()
//       server.finish(*batch);
//     }
//   }
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

#include "shoal/os/process/making_process.h"
#include "shoal/os/process/pidfd.h"
#include "shoal/os/socket/socket.h"
#include "shoal/process/supervise/event_loop.h"
#include "shoal/serve/client_slots.h"
#include "shoal/serve/messages.h"
#include "shoal/serve/request_queue.h"
#include "shoal/serve/server_segment.h"
#include "shoal/sync/spin_policy.h"

namespace shoal::serve {

struct ModelOptions {
  std::string name;
  std::uint32_t max_batch = 64;
  /// A batch leaves when its oldest row is this old, when it is full, or when every client of its
  /// queue waits, here or at another queue. It never leaves while another batch is computed. Zero:
  /// it leaves as soon as nothing is computed.
  std::chrono::nanoseconds max_delay{0};
};

struct ServerOptions {
  std::string address;  // of the frontend
  std::uint32_t instance = 0;
  std::vector<ModelOptions> models;
  std::uint32_t max_queues = 64;  // of one model: kinds of rows
  static constexpr std::uint32_t kMostSlots = 4096;
  std::uint32_t max_slots = kMostSlots;  // of one client at one queue: rows in flight
  /// Batches of a queue that are set aside; while there are so many, no other leaves. 0: any number.
  std::uint32_t most_aside = 0;
};

/// A row of a batch, and where its reply goes; a value.
struct BatchRow {
  ClientSlots* slots = nullptr;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint64_t submitted_ns = 0;
  std::uint64_t deadline_ns = 0;  // 0: none
  std::uint32_t client = 0;       // a number that no other client of this server has
  std::int32_t env = 0;           // a number of that client's
  bool reset = false;             // its own, or that of a dropped row before it
  bool answered = false;
};

struct QueueState;

/// Rows that left together; they are the first rows.size() of their buffer. finish() it before the
/// next call of next().
struct Batch {
  QueueState* queue = nullptr;
  std::uint32_t model = 0;
  std::uint64_t pinned = 0;
  std::uint32_t buffer = 0;
  std::vector<BatchRow> rows;
  std::uint64_t left_ns = 0;
  bool quarantined = false;  // its rows were copied: a missed claimer may still write to the buffer
  bool aside = false;        // its buffer is free
};

/// A batch whose replies come later, from elsewhere; a value, for take_back().
struct AsideBatch {
  Batch batch;
  std::vector<std::uint32_t> slots;  // ids, by row
};

/// A client asks for rows of a new kind, and sends an example to try the model with. Answer with
/// open_queue() or refuse() before the next call of next().
struct Probe {
  std::uint32_t client = 0;
  Open request;
};

/// A command of the frontend's owner to the executor; answer it with answer().
struct ServerCommand {
  std::uint64_t id = 0;
  std::vector<std::byte> bytes;
  std::uint32_t topic = 0;  // as of Frontend::command()
};

/// A client has gone; what is kept for it can be dropped.
struct ClientGone {
  std::uint32_t client = 0;
};

/// The frontend has closed: the server is to end.
struct ServerEnd {};

/// The deadline passed, or interrupt() was called, and there was nothing to do.
struct NoWork {};

using Work = std::variant<NoWork, Batch, Probe, ServerCommand, ClientGone, ServerEnd>;

/// A resource.
///
/// Threads: interrupt() any; one executor calls the rest. A thread of its own (process::EventLoop) talks with the
/// clients and notices their deaths.
/// Processes: the server's own; its clients are in any processes of the same user.
/// Invariants: a row gets one reply. A batch has rows of one queue. What a client writes into
/// shared memory is checked before it is used. A row that says `reset` and is dropped, since it was
/// cancelled or its deadline has passed, leaves its reset to the next row of its environment.
/// Death: of a client on any line: its rows are dropped and its slots unmapped. A batch that has
/// rows of others waits for it kStragglerWait and a nanosecond a byte at most. Of this process: its
/// clients see their connections close.
/// Fork: a child must not use it.
class Server {
 public:
  static constexpr std::chrono::milliseconds kStragglerWait{2};
  /// Of one topic: commands that wait for the executor.
  static constexpr std::size_t kMostCommands = 3;

  /// Connects to the frontend. Throws ServiceDied, InvalidArgument, SystemError.
  explicit Server(ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] Work next(os::Deadline deadline = os::kNoDeadline);
  /// Ends the call of next() under way, or the one that comes.
  void interrupt();

  // Of a batch.
  const RequestKind& kind(const Batch& batch) const noexcept;
  const RowSpec& outputs(const Batch& batch) const noexcept;
  /// Of the replies, as open_queue() was given it.
  const std::vector<std::byte>& answer_structure(const Batch& batch) const noexcept;
  std::uint32_t max_rows(const Batch& batch) const noexcept;
  std::byte* input(const Batch& batch, std::size_t leaf, std::uint32_t row = 0) const noexcept;
  /// Where to write array `leaf` of the reply to a row, before reply().
  std::byte* output(const Batch& batch, std::uint32_t row, std::size_t leaf) const noexcept;
  /// `version`: of the weights that the reply was computed with.
  void reply(Batch& batch, std::uint32_t row, std::uint64_t version) noexcept;
  /// `text`: as FailureText encodes it.
  void fail(Batch& batch, std::uint32_t row, std::string_view text, std::uint64_t version) noexcept;
  /// The row's deadline has passed.
  void expire(Batch& batch, std::uint32_t row) noexcept;
  /// Fails the rows without a reply, and frees the buffer. `padded_rows`: rows that were computed
  /// only to fill up the batch.
  void finish(Batch& batch, std::uint32_t padded_rows = 0);
  /// Frees the batch's buffer, so that input() has nothing any more; next() may be called before
  /// its replies are there.
  AsideBatch set_aside(Batch batch);
  /// The batch, to be answered and finished. A row whose client has gone has no `slots`, counts as
  /// answered, and has no output().
  Batch take_back(AsideBatch aside);

  /// Replies to rows of the probed kind consist of `outputs`; the client that asked gets its slots.
  /// Returns the queue, as batches of it have it. Throws InvalidArgument for outputs of more arrays
  /// or dimensions than there may be, SystemError when memory is short.
  QueueState* open_queue(const Probe& probe, RowSpec outputs, std::vector<std::byte> structure);
  void refuse(const Probe& probe, const Refused& why);
  void answer(const ServerCommand& command, std::span<const std::byte> bytes);

  ModelStatistics& statistics(std::uint32_t model) const noexcept {
    return segment_.models()[model];
  }
  std::size_t clients() const noexcept { return segment_.clients(); }

 private:
  struct Peer;
  struct OpenEvent {
    std::shared_ptr<Peer> peer;
    Open request;
  };
  struct LeaveEvent {
    std::uint32_t client = 0;
    std::uint32_t client_slots = 0;
  };
  using Event = std::variant<NoWork, OpenEvent, LeaveEvent, ServerCommand, ClientGone, ServerEnd>;

  // In the loop's thread.
  void watch_link();
  void hear_link();
  void keep_spare();
  void need_descriptors() const;
  void admit_here(os::Fd socket);
  void turn_away(Peer& peer, std::string_view error);
  void hear(const std::shared_ptr<Peer>& peer);
  void lose(const std::shared_ptr<Peer>& peer);
  void post(Event event);
  void drop_superseded(std::uint32_t topic);

  // The executor's.
  std::optional<Work> next_event();
  std::optional<Work> open(OpenEvent event);
  std::string too_many_kinds(const RequestKind& kind) const;
  void give_slots(const std::shared_ptr<Peer>& peer, QueueState& queue, std::uint32_t slots);
  void send(const std::shared_ptr<Peer>& peer, std::span<const std::byte> bytes,
            std::initializer_list<int> fds = {});
  void drop_slots_of(std::uint32_t client);
  void drop_slots(std::uint32_t id);
  QueueState* due_queue(std::uint64_t now, std::uint64_t& look_again);
  static bool quorum(const QueueState& queue) noexcept;
  static bool stands_still(QueueState& queue, std::uint32_t buffer, std::uint64_t now) noexcept;
  static bool is_claimed(const QueueState& queue, std::uint32_t buffer) noexcept;
  Batch take(QueueState& queue);
  void wait_for_stragglers(QueueState& queue, std::uint32_t buffer, std::uint32_t claimed);
  void collect(QueueState& queue, std::uint32_t buffer, std::uint32_t claimed, Batch& batch);
  bool begin_row(QueueState& queue, const RowCell& cell, Batch& batch);
  /// Whether the row begins its state anew: by itself, or for one before it that was dropped.
  bool takes_reset(const BatchRow& row, std::uint32_t model);
  void owe_reset(const BatchRow& row, std::uint32_t model);
  void give_back(const Batch& batch);
  void free_buffer(QueueState& queue, std::uint32_t buffer);
  void look_at_quarantine();
  void open_buffer(QueueState& queue);
  void answered(Batch& batch, std::uint32_t row, ReplyStatus status,
                std::uint64_t version) noexcept;
  void wait_for_work(std::uint32_t seen, os::Deadline until);

  const ServerOptions options_;
  ServerSegment segment_;
  std::vector<std::byte> hello_;
  os::PidFd own_pid_;
  os::SeqPacket link_;

  std::mutex mutex_;  // guards events_
  std::deque<Event> events_;

  // The executor's.
  std::vector<std::unique_ptr<QueueState>> queues_;
  struct ClientSlotsState {
    std::unique_ptr<ClientSlots> slots;
    std::uint32_t client = 0;
    QueueState* queue = nullptr;
  };
  std::unordered_map<std::uint32_t, ClientSlotsState> slots_;
  std::unordered_map<std::uint32_t, std::vector<ClientSlots*>> slots_of_;  // by client
  /// Resets of rows that were dropped, by client, model and environment.
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::int32_t>> owed_resets_;
  std::uint32_t next_slots_id_ = 1;
  std::shared_ptr<Peer> asker_;  // of the probe under way
  sync::SpinPolicy spin_;
  std::uint32_t spin_group_ = 1;
  const int cpus_;

  // The loop's thread.
  std::map<std::uint32_t, std::shared_ptr<Peer>> peers_;
  std::uint32_t next_client_ = 1;
  os::Fd spare_;  // a descriptor that is given back for the socket of the next client
  const os::MakingProcess maker_;
  std::unique_ptr<process::EventLoop> loop_;  // last: its thread uses the rest
};

}  // namespace shoal::serve
