// The side of Server that talks with clients: they come, ask for queues, and go. What concerns the
// executor reaches it as an event.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "shoal/os/log.h"
#include "shoal/serve/address.h"
#include "shoal/serve/errors.h"
#include "shoal/serve/server.h"
#include "shoal/serve/server_state.h"

namespace shoal::serve {
namespace {

/// How long a client may leave a message of the server unread. It waits for each, so it reads at
/// once.
constexpr std::chrono::seconds kClientReads{5};
/// One open, one being computed, and some whose rows were still being written when their batch
/// left.
constexpr std::uint32_t kBuffers = 4;
/// What the slots of a client may take unasked, so that a few rows can be in flight.
constexpr std::size_t kUnaskedBytes = std::size_t{1} << 20;
constexpr std::size_t kUnaskedSlots = 16;
/// What is left to the executor when a client is let in: queues, slots and long messages are memory
/// files.
constexpr std::size_t kDescriptorsLeft = 8;

}  // namespace

void Server::post(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto* command = std::get_if<ServerCommand>(&event)) drop_superseded(command->topic);
    events_.push_back(std::move(event));
  }
  segment_.work().ring();
}

/// Makes room for a command of this topic. With the mutex.
void Server::drop_superseded(std::uint32_t topic) {
  const auto is_of_topic = [topic](const Event& event) {
    const auto* command = std::get_if<ServerCommand>(&event);
    return topic != 0 && command != nullptr && command->topic == topic;
  };
  const auto waiting = static_cast<std::size_t>(std::ranges::count_if(events_, is_of_topic));
  if (waiting >= kMostCommands) events_.erase(std::ranges::find_if(events_, is_of_topic));
}

void Server::interrupt() {
  {
    const std::lock_guard lock(mutex_);
    if (events_.empty() || !std::holds_alternative<NoWork>(events_.back()))
      events_.push_back(NoWork{});
  }
  segment_.work().ring();
}

void Server::watch_link() {
  loop_->watch(link_.fd(), POLLIN, [this] {
    spare_.reset();  // for the socket of a client
    hear_link();
    keep_spare();
  });
}

void Server::hear_link() {
  os::Message message;
  try {
    const os::RecvOutcome outcome = link_.recv(message, os::Clock::now());
    if (outcome == os::RecvOutcome::kTimedOut) return;
    if (outcome == os::RecvOutcome::kClosed) {
      loop_->unwatch(link_.fd());
      post(ServerEnd{});
      return;
    }
    if (kind_of(message.bytes) == MessageKind::kAdmit) {
      for (os::Fd& fd : message.fds) admit_here(std::move(fd));
    } else {
      Command command = Command::decode(message.bytes);
      post(ServerCommand{command.id, std::move(command.bytes), command.topic});
    }
  } catch (const std::exception& error) {
    os::log(os::LogLevel::kWarning, "serve", "model service: {}", error.what());
  }
}

void Server::keep_spare() {
  try {
    if (!spare_) spare_ = os::Fd::duplicate(segment_.fd());
  } catch (const SystemError&) {  // somebody else took the last one
  }
}

/// Throws SystemError where the executor could not open queues for one more client.
void Server::need_descriptors() const {
  std::array<os::Fd, kDescriptorsLeft> left;
  for (os::Fd& fd : left) fd = os::Fd::duplicate(segment_.fd());
}

void Server::admit_here(os::Fd socket) {
  auto peer = std::make_shared<Peer>();
  try {
    peer->pid = peer_of(socket.get());
    peer->socket = os::SeqPacket(std::move(socket));
    peer->process = os::PidFd::open(peer->pid);
    keep_spare();
    need_descriptors();
    const int fds[] = {segment_.fd(), own_pid_.fd()};
    if (peer->socket.send(hello_, fds, os::deadline_after(kClientReads)) !=
        os::SendOutcome::kSent) {
      return;
    }
  } catch (const SystemError& error) {
    if (error.error_number() == EMFILE) turn_away(*peer, error.what());
    return;  // else it has gone already
  } catch (const std::exception&) {
    return;
  }
  peer->id = next_client_++;
  peers_[peer->id] = peer;
  segment_.set_clients(static_cast<std::uint32_t>(peers_.size()));
  loop_->watch(peer->socket.fd(), POLLIN, [this, peer] { hear(peer); });
  loop_->watch(peer->process.fd(), POLLIN, [this, peer] { lose(peer); });
}

/// Tells a client that there are no descriptors for it.
void Server::turn_away(Peer& peer, std::string_view error) {
  const std::string why = fmt::format(
      "a server of the model service has {} clients and takes no more: {}. Each thread that asks "
      "is a client, which takes 2 descriptors there: raise the hard limit (ulimit -Hn) of the "
      "program that makes the service, give it more instances, or ask from fewer threads",
      peers_.size(), error);
  os::log(os::LogLevel::kWarning, "serve", "model service: {}", why);
  static_cast<void>(peer.socket.send(Refused{RefusalKind::kInvalid, why, ""}.encode(), {},
                                     os::deadline_after(kClientReads)));
}

void Server::hear(const std::shared_ptr<Peer>& peer) {
  os::Message message;
  try {
    const os::RecvOutcome outcome = peer->socket.recv(message, os::Clock::now());
    if (outcome == os::RecvOutcome::kTimedOut) return;
    if (outcome == os::RecvOutcome::kClosed) {
      lose(peer);
      return;
    }
    switch (kind_of(message.bytes)) {
      case MessageKind::kOpen:
        post(OpenEvent{peer, Open::decode(message.bytes)});
        return;
      case MessageKind::kLeave:
        post(LeaveEvent{peer->id, Leave::decode(message.bytes).client_slots});
        return;
      default:
        throw Error("a client of the model service sent what clients do not send");
    }
  } catch (const std::exception& error) {
    os::log(os::LogLevel::kWarning, "serve", "model service: process {}: {}", peer->pid,
            error.what());
    lose(peer);
  }
}

void Server::lose(const std::shared_ptr<Peer>& peer) {
  if (peers_.erase(peer->id) == 0) return;
  segment_.set_clients(static_cast<std::uint32_t>(peers_.size()));
  loop_->unwatch(peer->socket.fd());
  loop_->unwatch(peer->process.fd());
  peer->socket.shutdown();
  post(ClientGone{peer->id});
}

std::optional<Work> Server::next_event() {
  for (;;) {
    Event event;
    {
      const std::lock_guard lock(mutex_);
      if (events_.empty()) return std::nullopt;
      event = std::move(events_.front());
      events_.pop_front();
    }
    if (auto* opening = std::get_if<OpenEvent>(&event)) {
      if (auto work = open(std::move(*opening))) return work;
    } else if (const auto* leaving = std::get_if<LeaveEvent>(&event)) {
      const auto found = slots_.find(leaving->client_slots);
      if (found != slots_.end() && found->second.client == leaving->client)
        drop_slots(found->first);
    } else if (const auto* gone = std::get_if<ClientGone>(&event)) {
      drop_slots_of(gone->client);
      return *gone;
    } else if (auto* command = std::get_if<ServerCommand>(&event)) {
      return std::move(*command);
    } else if (std::holds_alternative<NoWork>(event)) {
      return NoWork{};
    } else {
      return ServerEnd{};
    }
  }
}

/// Why no queue more is opened for this kind's model.
std::string Server::too_many_kinds(const RequestKind& kind) const {
  std::size_t all = 0, of_latest = 0;
  for (const auto& state : queues_) {
    if (state->queue->kind().model != kind.model) continue;
    ++all;
    if (state->queue->kind().pinned == 0) ++of_latest;
  }
  const std::string& name = options_.models[kind.model].name;
  if (all == of_latest && kind.pinned == 0) {
    return fmt::format(
        "the model '{}' has been asked for rows of {} different shapes and dtypes already, and "
        "this one, {}, is new: bring the rows to a few shapes before they are sent",
        name, all, describe(kind.inputs));
  }
  return fmt::format(
      "the model '{}' has been asked for {} kinds of rows already, {} of them of pinned versions, "
      "and this one, {} of {}, is new. Each shape and dtype counts once for the latest weights and "
      "once for each version that a row has pinned since this server was started: pin fewer "
      "versions, or serve those that are asked for long as models of their own",
      name, all, all - of_latest, describe(kind.inputs),
      kind.pinned == 0 ? "the latest version" : fmt::format("version {}", kind.pinned));
}

std::optional<Work> Server::open(OpenEvent event) {
  const RequestKind& kind = event.request.kind;
  const auto queue = std::ranges::find_if(
      queues_, [&](const auto& state) { return state->queue->kind() == kind; });
  if (queue != queues_.end()) {
    give_slots(event.peer, **queue, event.request.slots);
    return std::nullopt;
  }
  std::size_t example = 0;
  for (const shm::TensorSpec& leaf : kind.inputs) example += leaf.bytes();
  const auto of_model = std::ranges::count_if(
      queues_, [&](const auto& state) { return state->queue->kind().model == kind.model; });
  std::string refusal;
  if (kind.model >= options_.models.size() || example != event.request.example.size()) {
    refusal = "a client asked for a model that there is not, or described its rows wrongly";
  } else if (static_cast<std::uint32_t>(of_model) >= options_.max_queues && !kind.inputs.empty()) {
    // Without arrays a queue is small, and an executor that is asked a question opens none.
    refusal = too_many_kinds(kind);
  }
  if (!refusal.empty()) {
    send(event.peer, Refused{RefusalKind::kInvalid, refusal, ""}.encode());
    return std::nullopt;
  }
  asker_ = std::move(event.peer);
  return Probe{asker_->id, std::move(event.request)};
}

QueueState* Server::open_queue(const Probe& probe, RowSpec outputs,
                               std::vector<std::byte> structure) {
  check_row_spec(outputs, "the model's answer to a row");
  const ModelOptions& model = options_.models[probe.request.kind.model];
  auto state = std::make_unique<QueueState>();
  state->queue = RequestQueue::create(
      static_cast<std::uint32_t>(queues_.size()), probe.request.kind,
      {.buffers = kBuffers, .max_rows = model.max_batch}, model.max_delay.count() > 0);
  state->outputs = std::move(outputs);
  state->structure = std::move(structure);
  state->max_delay_ns = static_cast<std::uint64_t>(model.max_delay.count());
  for (std::uint32_t buffer = 0; buffer < kBuffers; ++buffer) state->free.push_back(buffer);
  open_buffer(*state);
  queues_.push_back(std::move(state));
  give_slots(std::exchange(asker_, nullptr), *queues_.back(), probe.request.slots);
  return queues_.back().get();
}

void Server::refuse(const Probe&, const Refused& why) {
  send(std::exchange(asker_, nullptr), why.encode());
}

void Server::give_slots(const std::shared_ptr<Peer>& peer, QueueState& state, std::uint32_t slots) {
  try {
    ClientSlotsState given;
    const std::size_t cheap =
        kUnaskedBytes / std::max(row_bytes(state.outputs), ClientSlots::kMaxTextBytes);
    slots = std::max(slots,
                     static_cast<std::uint32_t>(std::clamp<std::size_t>(cheap, 2, kUnaskedSlots)));
    given.slots =
        ClientSlots::create(next_slots_id_++, state.outputs, std::min(slots, options_.max_slots));
    given.client = peer->id;
    given.queue = &state;
    const std::uint32_t id = given.slots->id();
    send(peer, Opened{state.outputs, state.structure}.encode(),
         {state.queue->fd(), given.slots->fd()});
    given.slots->close_fd();
    std::vector<ClientSlots*>& theirs = slots_of_[peer->id];
    theirs.push_back(given.slots.get());
    state.slots.push_back({given.slots.get(), &theirs});
    slots_[id] = std::move(given);
  } catch (const SystemError& error) {
    send(peer, Refused{RefusalKind::kInvalid, error.what(), ""}.encode());
  }
}

void Server::send(const std::shared_ptr<Peer>& peer, std::span<const std::byte> bytes,
                  std::initializer_list<int> fds) {
  try {
    const auto outcome =
        peer->socket.send(bytes, {fds.begin(), fds.size()}, os::deadline_after(kClientReads));
    if (outcome == os::SendOutcome::kSent) return;
  } catch (const SystemError& error) {
    os::log(os::LogLevel::kWarning, "serve", "model service: {}", error.what());
  }
  peer->socket.shutdown();  // it has gone, or stands still: hear() finds it so
}

void Server::drop_slots_of(std::uint32_t client) {
  std::erase_if(owed_resets_, [&](const auto& owed) { return std::get<0>(owed) == client; });
  const auto found = slots_of_.find(client);
  if (found == slots_of_.end()) return;
  while (!found->second.empty()) drop_slots(found->second.back()->id());
  slots_of_.erase(found);
}

void Server::drop_slots(std::uint32_t id) {
  const auto found = slots_.find(id);
  const ClientSlots* dropped = found->second.slots.get();
  std::erase(slots_of_[found->second.client], dropped);
  std::erase_if(found->second.queue->slots,
                [&](const SlotsOfClient& one) { return one.slots == dropped; });
  slots_.erase(found);
}

void Server::answer(const ServerCommand& command, std::span<const std::byte> bytes) {
  const Command said{command.id, {bytes.begin(), bytes.end()}};
  // The frontend always reads. Where it has gone, so has the process that asked.
  static_cast<void>(link_.send(said.encode(MessageKind::kAnswer)));
}

}  // namespace shoal::serve
