#include "shoal/serve/remote/guest.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/limits/affinity.h"
#include "shoal/process/self/own_thread.h"
#include "shoal/serve/errors.h"

namespace shoal::serve {
namespace {

using Bytes = std::vector<std::byte>;

/// The guest is to end.
class GuestEnds : public Error {
 public:
  GuestEnds() : Error("the relay has gone") {}
};

os::Deadline deadline_in(std::uint64_t left_ns) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 60;
  if (left_ns == 0) return os::kNoDeadline;
  return os::deadline_after(std::chrono::nanoseconds(std::min(left_ns, kLongest)));
}

template <class Body>
std::thread start_thread(Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw SystemError("start a thread that asks the models for a relay", error.code().value());
  }
}

}  // namespace

Guest::Guest(std::string address, const Terms& terms, Send send)
    : address_(std::move(address)), terms_(terms), send_(std::move(send)) {
  running_.store(1, std::memory_order_release);
  opener_ = start_thread([this] { run("shoal-guest", [this] { open_queues(); }); });
}

Guest::~Guest() {
  end();
  opener_.join();  // which alone makes queues
  for (const auto& [number, queue] : queues_) queue->thread.join();
}

void Guest::end() noexcept {
  ending_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  for (const auto& [number, queue] : queues_) queue->at->slots->done().ring();
}

void Guest::need_going_on() const {
  if (ending_.load(std::memory_order_acquire)) throw GuestEnds();
}

/// A thread of the guest's. What ends it ends them all, and the relay is told of it.
template <class Body>
void Guest::run(const char* name, Body body) noexcept {
  const process::OwnThread own(name);
  try {
    body();
  } catch (const GuestEnds&) {
  } catch (const std::exception& error) {
    if (!told_end_.exchange(true, std::memory_order_acq_rel)) send_(pack_ended(error.what()));
  }
  end();
  running_.fetch_sub(1, std::memory_order_acq_rel);
}

void Guest::receive(Bytes& message) {
  switch (remote_kind_of(message)) {
    case RemoteKind::kOpen: {
      const RemoteMessage read = read_remote(message);
      Opening opening{.queue = read.queue, .request = Open::decode(read.encoded)};
      if (!may_cross(opening.request.kind.structure) ||
          !fits_remote(opening.request.kind.inputs, terms_.most_rows)) {
        throw Error("it asked for a queue of rows that cannot cross");
      }
      return take_opening(std::move(opening));
    }
    case RemoteKind::kRows: {
      const RemoteBatch batch = batch_of(message);
      const std::lock_guard lock(mutex_);
      const auto found = queues_.find(batch.queue);
      if (found == queues_.end()) throw Error("it sent rows for a queue that it has not opened");
      GuestQueue& queue = *found->second;
      if (batch.rows > terms_.most_rows || queue.under_way >= terms_.most_under_way)
        throw Error("it sent more rows than it may");
      ++queue.under_way;
      queue.inbox.push_back(std::move(message));
      queue.at->slots->done().ring();
      return;
    }
    default:
      throw Error("it sent what only a service sends");
  }
}

void Guest::take_opening(Opening opening) {
  const std::lock_guard lock(mutex_);
  if (opens_) throw Error("it asked for a queue before it had the answer about another");
  for (const auto& [number, queue] : queues_) {
    if (number == opening.queue || queue->kind == opening.request.kind)
      throw Error("it asked for a queue that it has opened");
  }
  opens_ = true;
  opening_ = std::move(opening);
  changed_.notify_all();
}

std::size_t Guest::queues() const {
  const std::lock_guard lock(mutex_);
  return queues_.size();
}

// The thread that opens queues

void Guest::open_queues() {
  auto client = Client::connect(address_, os::kNoDeadline, [this] { need_going_on(); });
  {
    const std::lock_guard lock(client_mutex_);
    client_ = std::move(client);
  }
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, Client::kSlice * 10,
                      [&] { return opening_ || ending_.load(std::memory_order_acquire); });
    need_going_on();
    if (!opening_) {
      lock.unlock();
      const std::lock_guard alone(client_mutex_);
      client_->need_alive();
      continue;
    }
    const Opening opening = std::move(*opening_);
    opening_.reset();
    lock.unlock();
    open_queue(opening);
  }
}

void Guest::open_queue(const Opening& opening) {
  const auto refuse = [&](const Refused& why) {
    send_opening_answer(RemoteKind::kRefused, opening.queue, why.encode());
  };
  const RequestKind& kind = opening.request.kind;
  std::vector<const std::byte*> example;
  std::size_t bytes = 0;
  for (const shm::TensorSpec& leaf : kind.inputs) {
    example.push_back(opening.request.example.data() + bytes);
    bytes += leaf.bytes();
  }
  if (bytes != opening.request.example.size()) throw Error("a relay described its rows wrongly");
  auto queue = std::make_unique<GuestQueue>();
  try {
    const std::lock_guard alone(client_mutex_);
    queue->at = &client_->open(kind, example, terms_.most_rows * terms_.most_under_way);
  } catch (const ModelError& error) {
    return refuse({RefusalKind::kModelError, error.what(), error.traceback()});
  } catch (const OverCapacity& error) {
    return refuse({RefusalKind::kInvalid, error.what(), ""});
  } catch (const InvalidArgument& error) {
    return refuse({RefusalKind::kInvalid, error.what(), ""});
  }
  const Opened opened{queue->at->outputs, queue->at->structure};
  if (!may_cross(opened.structure) || !fits_remote(opened.outputs, terms_.most_rows)) {
    return refuse(
        {RefusalKind::kInvalid,
         "the model's answers cannot cross to another host: they have dicts with keys that "
         "are none of str, int, float, bool, bytes, None and tuples of these, or a batch of "
         "them is larger than what crosses at once",
         ""});
  }
  queue->number = opening.queue;
  queue->kind = kind;
  try {
    start(std::move(queue));
  } catch (const SystemError& error) {
    return refuse({RefusalKind::kInvalid, error.what(), ""});
  }
  send_opening_answer(RemoteKind::kOpened, opening.queue, opened.encode());
}

/// Throws SystemError where no thread can be had; then there is no such queue.
void Guest::start(std::unique_ptr<GuestQueue> queue) {
  const std::lock_guard lock(mutex_);
  const auto at = queues_.emplace(queue->number, std::move(queue)).first;
  GuestQueue& there = *at->second;
  try {
    there.thread = start_thread([this, &there] { run("shoal-guest-q", [&] { answer(there); }); });
  } catch (const SystemError&) {
    queues_.erase(at);
    throw;
  }
  // The thread takes the mutex before it counts itself out.
  running_.fetch_add(1, std::memory_order_acq_rel);
}

/// The relay may ask for another queue as soon as it has this.
void Guest::send_opening_answer(RemoteKind kind, std::uint32_t queue,
                                std::span<const std::byte> encoded) {
  {
    const std::lock_guard lock(mutex_);
    opens_ = false;
  }
  send_(pack_remote(kind, queue, encoded));
}

// A queue's thread

void Guest::answer(GuestQueue& queue) {
  const ClientSlots& slots = *queue.at->slots;
  sync::SpinPolicy spin({.group_size = 2}, sync::CpuLoad(), os::allowed_cpus());
  for (;;) {
    const std::uint32_t seen = slots.done().generation();
    need_going_on();
    const bool submitted = submit_new(queue);
    if (give_out(queue) || submitted) continue;
    if (!queue.asked.empty()) {
      const std::lock_guard alone(client_mutex_);
      client_->announce_wait(*queue.at);
    }
    const os::Deadline slice = os::deadline_after(Client::kSlice);
    if (slots.done().wait(seen, spin, slice) == sync::WaitOutcome::kReady) continue;
    // While another thread has the client, that one sees the server's end.
    if (const std::unique_lock alone(client_mutex_, std::try_to_lock); alone) client_->need_alive();
  }
}

bool Guest::submit_new(GuestQueue& queue) {
  std::deque<Bytes> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(queue.inbox);
  }
  for (const Bytes& message : messages) submit(queue, message);
  return !messages.empty();
}

void Guest::submit(GuestQueue& queue, std::span<const std::byte> message) {
  const RowsView view = view_rows(message, queue.kind.inputs);
  const std::uint64_t now = os::now_ns();
  std::vector<RowOrigin> origins;
  for (const RowTag& tag : view.tags) {
    origins.push_back({.env = tag.env,
                       .reset = (tag.flags & RowTag::kReset) != 0,
                       .deadline = deadline_in(tag.left_ns),
                       .submitted_ns = now - std::min(now, tag.age_ns)});
  }
  const auto count = static_cast<std::uint32_t>(view.tags.size());
  rows_.fetch_add(count, std::memory_order_relaxed);
  const std::lock_guard alone(client_mutex_);
  queue.asked.push_back(
      {batch_of(message),
       client_->submit(*queue.at, {.leaves = view.leaves, .count = count, .origins = origins})});
}

/// Sends the replies that are complete.
bool Guest::give_out(GuestQueue& queue) {
  const auto is_done = [&](const Asked& asked) {
    return std::ranges::all_of(asked.request.rows, [&](const Request::Row& row) {
      return queue.at->slots->cell(row.slot).word.state() == sync::ReplyState::kDone;
    });
  };
  bool some = false;
  while (!queue.asked.empty() && is_done(queue.asked.front())) {
    reply(queue, queue.asked.front());
    queue.asked.pop_front();
    some = true;
  }
  return some;
}

void Guest::reply(GuestQueue& queue, Asked& asked) {
  const ClientSlots& slots = *queue.at->slots;
  const auto slot = [&](std::uint32_t row) { return asked.request.rows[row].slot; };
  std::vector<ReplyTag> tags(asked.batch.rows);
  for (std::uint32_t row = 0; row < asked.batch.rows; ++row) {
    const SlotCell& cell = slots.cell(slot(row));
    tags[row] = {.status = cell.status, .text_bytes = 0, .version = cell.version};
    if (cell.status == ReplyStatus::kModelError)
      tags[row].text_bytes = static_cast<std::uint32_t>(slots.text(slot(row)).size());
  }
  Bytes message = pack_replies(
      asked.batch, tags, queue.at->outputs,
      [&](std::size_t leaf, std::uint32_t row) {
        return tags[row].status == ReplyStatus::kOk ? slots.output(slot(row), leaf) : nullptr;
      },
      [&](std::uint32_t row) { return slots.text(slot(row)); });
  {
    const std::lock_guard alone(client_mutex_);
    client_->release(asked.request);
  }
  {
    const std::lock_guard lock(mutex_);
    --queue.under_way;
  }
  send_(std::move(message));
}

}  // namespace shoal::serve
