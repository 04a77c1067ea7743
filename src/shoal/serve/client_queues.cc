// How a client meets its server, and gets its queues.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "shoal/os/limits/affinity.h"
#include "shoal/os/poll.h"
#include "shoal/serve/address.h"
#include "shoal/serve/client.h"
#include "shoal/serve/errors.h"
#include "shoal/trace/recorder.h"

namespace shoal::serve {
namespace {

/// How long the client waits for a hello before it connects again. The server that it was handed to
/// may have died, while a process that was forked at that moment holds the connection open.
constexpr std::chrono::seconds kPatience{1};

[[noreturn]] void throw_refused(const Refused& refused) {
  if (refused.kind == RefusalKind::kModelError) {
    throw ModelError(refused.message, refused.traceback);
  }
  throw InvalidArgument(refused.message);
}

}  // namespace

std::unique_ptr<Client> Client::connect(const std::string& address, os::Deadline deadline,
                                        std::function<void()> idle) {
  std::unique_ptr<Client> client(new Client);
  client->idle_ = std::move(idle);
  client->address_ = address;
  client->cpus_ = os::allowed_cpus();
  trace::open();
  for (;;) {
    client->socket_ = connect_to(address);
    try {
      client->greet(std::min(deadline, os::deadline_after(kPatience)));
      return client;
    } catch (const DeadlineExceeded&) {
      client->socket_.shutdown();  // a forked child may have it open
      if (os::Clock::now() >= deadline) throw;
    } catch (...) {
      client->socket_.shutdown();
      throw;
    }
  }
}

// The server sees the connection close.
Client::~Client() = default;

void Client::greet(os::Deadline deadline) {
  os::Message message;
  receive(message, deadline);
  if (kind_of(message.bytes) == MessageKind::kEndNotice) {
    throw ServiceDied(EndNotice::decode(message.bytes).text);
  }
  if (kind_of(message.bytes) == MessageKind::kRefused) {
    throw OverCapacity(Refused::decode(message.bytes).message);
  }
  hello_ = Hello::decode(message.bytes);
  if (message.fds.size() != 2) throw Error("the hello of a model service lacks its memory");
  segment_ = ServerSegment::attach(std::move(message.fds[0]));
  server_ = os::PidFd(std::move(message.fds[1]));
}

/// A message that has not come when the wait ends is for whoever receives next.
void Client::receive(os::Message& message, os::Deadline deadline) {
  for (;;) {
    const os::Deadline slice = std::min(deadline, os::deadline_after(kSlice));
    os::RecvOutcome outcome;
    try {
      outcome = socket_.recv(message, slice);
    } catch (const SystemError& error) {
      // Without a descriptor for what comes with it, one message is lost, and no more.
      if (error.error_number() != EMFILE) socket_.shutdown();
      throw;
    } catch (const Error&) {
      socket_.shutdown();
      throw;
    }
    if (outcome == os::RecvOutcome::kMessage) return;
    if (outcome == os::RecvOutcome::kClosed || (server_ && server_.ended())) throw_died();
    if (os::Clock::now() >= deadline) {
      throw DeadlineExceeded("the model service did not answer before the deadline");
    }
    if (idle_) idle_();
  }
}

std::uint32_t Client::model(std::string_view name) const {
  const auto found = std::ranges::find(hello_.models, name);
  if (found == hello_.models.end()) {
    throw InvalidArgument(fmt::format("the model service has no model '{}'; it has {}", name,
                                      fmt::join(hello_.models, ", ")));
  }
  return static_cast<std::uint32_t>(found - hello_.models.begin());
}

ClientQueue* Client::find(const RequestKind& kind, std::uint32_t slots) noexcept {
  for (auto at = queues_.rbegin(); at != queues_.rend(); ++at) {
    ClientQueue& found = **at;
    if (found.queue->kind() == kind) {  // the newest of a kind has the most slots
      reclaim(found);
      return found.free.size() >= slots ? &found : nullptr;
    }
  }
  return nullptr;
}

bool Client::knows(const RequestKind& kind) const noexcept {
  return std::ranges::any_of(queues_, [&](const auto& at) { return at->queue->kind() == kind; });
}

ClientQueue& Client::open(const RequestKind& kind, std::span<const std::byte* const> example,
                          std::uint32_t slots, os::Deadline deadline) {
  take_answers(kind);
  for (;;) {
    if (ClientQueue* at = find(kind, slots)) return *at;
    // The model has been tried with another example where this was asked for before.
    const bool is_own = !is_owed(kind, slots);
    if (is_own) ask_for(kind, example, slots, deadline);
    std::optional<Refused> refused;
    while (is_owed(kind, slots)) refused = take_answer(deadline);
    if (refused && is_own) throw_refused(*refused);
    if (!refused && find(kind, slots) == nullptr) {
      throw_too_many(slots, queues_.back()->slots->slots());
    }
  }
}

ClientQueue& Client::open_now(const RequestKind& kind, std::span<const std::byte* const> example,
                              std::uint32_t slots) {
  take_answers(kind);
  if (ClientQueue* at = find(kind, slots)) return *at;
  if (!is_owed(kind, slots)) ask_for(kind, example, slots, os::Clock::now());
  throw OverCapacity(
      "as many rows are in flight as this client has slots for, and the server, which gives more "
      "between two batches, has been asked for them: ask again later, read a reply, or wait for "
      "room");
}

bool Client::is_owed(const RequestKind& kind, std::uint32_t slots) const noexcept {
  return std::ranges::any_of(
      owed_, [&](const Owed& owed) { return owed.slots >= slots && owed.kind == kind; });
}

void Client::ask_for(const RequestKind& kind, std::span<const std::byte* const> example,
                     std::uint32_t slots, os::Deadline deadline) {
  check_row_spec(kind.inputs, "a row of a call");
  std::uint32_t in_flight = 0;
  for (const auto& at : queues_) {
    if (at->queue->kind() == kind) {
      in_flight = std::max<std::uint32_t>(
          in_flight, at->slots->slots() - static_cast<std::uint32_t>(at->free.size()));
    }
  }
  Open request{.kind = kind, .slots = std::bit_ceil(slots + in_flight), .example = {}};
  for (std::size_t leaf = 0; leaf < kind.inputs.size(); ++leaf) {
    const std::byte* row = example[leaf];
    request.example.insert(request.example.end(), row, row + kind.inputs[leaf].bytes());
  }
  switch (socket_.send(request.encode(), {}, deadline)) {
    case os::SendOutcome::kSent:
      owed_.push_back({kind, request.slots});
      return;
    case os::SendOutcome::kTimedOut:
      throw DeadlineExceeded("the model service took no request before the deadline");
    case os::SendOutcome::kClosed:
      throw_died();
  }
}

/// Waits for the next answer that is owed; returns why it is a refusal, where it is one.
std::optional<Refused> Client::take_answer(os::Deadline deadline) {
  os::Message message;
  try {
    receive(message, deadline);
  } catch (const SystemError& error) {
    if (error.error_number() == EMFILE) owed_.pop_front();  // this was it
    throw;
  }
  const RequestKind kind = std::move(owed_.front().kind);
  owed_.pop_front();
  if (kind_of(message.bytes) == MessageKind::kRefused) return Refused::decode(message.bytes);
  const ClientQueue& at = add_queue(kind, std::move(message));
  leave_idle(kind, &at);
  return std::nullopt;
}

/// The answers that have come. Of a kind that is known a refusal says that the server has no more;
/// one to a new kind was about another row than the caller's.
void Client::take_answers(const RequestKind& kind) {
  while (!owed_.empty() && os::poll_one(socket_.fd(), POLLIN, os::Clock::now())) {
    const bool matters = owed_.front().kind == kind && knows(kind);
    const std::optional<Refused> refused = take_answer(os::Clock::now());
    if (refused && matters) throw_refused(*refused);
  }
}

ClientQueue& Client::add_queue(const RequestKind& kind, os::Message message) {
  Opened opened = Opened::decode(message.bytes);
  if (message.fds.size() != 2) throw Error("a queue of a model service came without its memory");
  auto at = std::make_unique<ClientQueue>();
  const auto same = std::ranges::find_if(
      queues_, [&](const auto& other) { return other->queue->kind() == kind; });
  at->queue =
      same != queues_.end()
          ? (*same)->queue
          : std::shared_ptr<RequestQueue>(RequestQueue::attach(std::move(message.fds[0]), kind));
  at->slots = ClientSlots::attach(std::move(message.fds[1]), opened.outputs);
  at->outputs = std::move(opened.outputs);
  at->structure = std::move(opened.structure);
  for (std::uint32_t slot = at->slots->slots(); slot > 0; --slot) at->free.push_back(slot - 1);
  queues_.push_back(std::move(at));
  return *queues_.back();
}

/// Gives back the queues of this kind with nothing in flight, except `kept`.
void Client::leave_idle(const RequestKind& kind, const ClientQueue* kept) {
  std::erase_if(queues_, [&](const auto& at) {
    if (at.get() == kept || at->queue->kind() != kind) return false;
    reclaim(*at);
    if (at->free.size() < at->slots->slots()) return false;
    static_cast<void>(socket_.send(Leave{at->slots->id()}.encode()));
    return true;
  });
}

bool Client::alive() const {
  if (server_ && server_.ended()) return false;
  // What can be read may be an answer that is owed.
  return !os::poll_one(socket_.fd(), POLLRDHUP, os::Clock::now());
}

void Client::need_alive() const {
  if (!alive()) throw_died();
}

void Client::throw_died() const {
  constexpr std::chrono::milliseconds kPatience{500};
  std::string text = "the server of the model service has ended";
  if (!address_.empty()) {
    try {
      os::SeqPacket again = connect_to(address_);
      os::Message message;
      // The process that made the service may not have seen its end yet.
      if (again.recv(message, os::deadline_after(kPatience)) == os::RecvOutcome::kMessage) {
        text = kind_of(message.bytes) == MessageKind::kEndNotice
                   ? EndNotice::decode(message.bytes).text
                   : text + "; another has taken its place";
      }
    } catch (const ServiceDied& error) {
      text = error.what();
    }
  }
  throw ServiceDied(text);
}

}  // namespace shoal::serve
