#include "shoal/group/connection/message_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/log.h"
#include "shoal/process/self/own_thread.h"

namespace shoal::group {
namespace {

constexpr std::chrono::seconds kToSayHello{10};
constexpr std::chrono::seconds kToTakeLeave{1};
constexpr std::ptrdiff_t kMostStrangers = 256;  // that have not said who they are

os::StreamListener listen_on(const MessageServer::Options& options) {
  require_secret(options.host, options.secret, fmt::format("listen on {}", options.host),
                 "on both sides");
  auto listener = os::StreamListener::bind_host(options.host, options.port);
  if (!listener)
    throw Error(
        fmt::format("listen on {}:{}: another program has this port, or it may not be "
                    "used; port 0 takes a free one",
                    options.host, options.port));
  return std::move(*listener);
}

}  // namespace

MessageServer::MessageServer(Options options)
    : options_(std::move(options)), listener_(listen_on(options_)), port_(listener_->port()) {}

MessageServer::~MessageServer() {
  close({"it has ended", false});
  if (!thread_.joinable()) return;
  os::abandon(std::move(thread_));
  os::abandon(std::move(clients_));
}

void MessageServer::start(Owner& owner) {
  SHOAL_CHECK(owner_ == nullptr, "a server is started once");
  owner_ = &owner;
  thread_ = std::thread([this] { run(); });
}

void MessageServer::close(const Farewell& farewell) noexcept {
  if (!maker_.is_this()) return;
  if (thread_.joinable()) {
    farewell_ = farewell;
    ending_.store(true, std::memory_order_release);
    wake_.notify();
    thread_.join();
  }
  listener_.reset();
}

void MessageServer::send(Id id, SharedBytes message) {
  const auto found = clients_.find(id);
  if (found != clients_.end() && !found->second.gone)
    found->second.stream.queue(std::move(message));
}

std::size_t MessageServer::waiting(Id id) const {
  const auto found = clients_.find(id);
  return found == clients_.end() || found->second.gone ? 0 : found->second.stream.waiting();
}

void MessageServer::run() {
  const process::OwnThread own("shoal-server");
  next_beat_ = looked_ = os::Clock::now();
  while (!ending_.load(std::memory_order_acquire)) turn();
  say_farewell();
  clients_.clear();
}

void MessageServer::turn() {
  const bool accepts = os::Clock::now() >= accept_again_;
  std::vector<pollfd> entries{{wake_.fd(), POLLIN, 0}, {accepts ? listener_->fd() : -1, POLLIN, 0}};
  std::vector<Id> ids;
  for (const auto& [id, client] : clients_) {
    entries.push_back({client.stream.fd(), client.stream.events(), 0});
    ids.push_back(id);
  }
  const auto pause = std::max(next_beat_ - os::Clock::now(), os::Clock::duration::zero());
  ::poll(entries.data(), entries.size(),
         static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(pause).count()));
  const auto now = os::Clock::now();
  if (now - looked_ > kLongestSilence / 2)  // it was this process that was stopped
    for (auto& [id, client] : clients_) client.stream.count_as_heard(now);
  looked_ = now;
  wake_.clear();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Client& client = clients_.at(ids[i]);
    if ((entries[i + 2].revents & ~POLLOUT) == 0 || client.gone) continue;
    hear(ids[i], client);
    beat();  // what it said may take a while to read
  }
  if (entries[1].revents != 0) let_in();
  beat();
  look_for_silence(now);
  owner_->look();
  flush_all();
  std::erase_if(clients_, [](const auto& entry) { return entry.second.gone; });
}

/// Says to all that this process is there, where it is time.
void MessageServer::beat() {
  const auto now = os::Clock::now();
  if (now < next_beat_) return;
  for (auto& [id, client] : clients_)
    if (client.admitted && client.stream.waiting() == 0) client.stream.queue(pack_heartbeat());
  next_beat_ = now + kBeat;
  flush_all();
}

void MessageServer::let_in() {
  try {
    auto stream = listener_->accept(os::Deadline::min());
    if (!stream) return;
    const auto is_stranger = [](const auto& entry) {
      return !entry.second.admitted && !entry.second.gone;
    };
    if (std::ranges::count_if(clients_, is_stranger) >= kMostStrangers)
      std::ranges::find_if(clients_, is_stranger)->second.gone = true;  // who came first
    Client client{.stream = MessageStream(std::move(*stream)),
                  .challenge = make_challenge(),
                  .since = os::Clock::now()};
    client.stream.queue(pack_hello_challenge(client.challenge));
    clients_.emplace(next_++, std::move(client));
  } catch (const Error& error) {  // no descriptor is left, say
    os::log(os::LogLevel::kWarning, "group", "a connection could not be taken: {}", error.what());
    accept_again_ = os::Clock::now() + kBeat;
  }
}

void MessageServer::hear(Id id, Client& client) {
  try {
    const std::uint64_t before = client.stream.received_bytes();
    const auto got = client.stream.recv(message_);
    received_.fetch_add(client.stream.received_bytes() - before, std::memory_order_relaxed);
    if (got == MessageStream::Got::kMessage) take(id, client, message_);
    if (got == MessageStream::Got::kClosed)
      drop(id, client, "its connection has ended: it was killed, or ended without a farewell",
           false);
  } catch (const std::exception& error) {
    send_away(id, client, error.what());
  }
}

void MessageServer::take(Id id, Client& client, std::vector<std::byte>& message) {
  if (!client.admitted) {
    const Hello hello = unpack_hello(message, client.challenge, options_.secret);
    const Admission admission{this_host(), static_cast<int>(::getpid()), owner_->admit(id, hello)};
    client.admitted = true;
    client.stream.set_longest(options_.longest);
    client.stream.queue(pack(admission, hello.challenge, options_.secret));
    return;
  }
  const std::uint8_t kind = kind_byte_of(message);
  if (kind >= kFirstOfOwn) return owner_->receive(id, message);
  if (kind == static_cast<std::uint8_t>(HelloKind::kFarewell)) {
    const Farewell farewell = unpack_hello_farewell(message);
    drop(id, client, farewell.why, farewell.final);
  } else if (kind != static_cast<std::uint8_t>(HelloKind::kHeartbeat)) {
    throw Error("a message of another kind than was expected: another program speaks there");
  }
}

void MessageServer::drop(Id id, Client& client, const std::string& cause, bool left) {
  if (client.gone) return;
  client.gone = true;
  if (client.admitted) owner_->lose(id, cause, left);
}

void MessageServer::send_away(Id id, Client& client, const std::string& why) {
  os::log(client.admitted ? os::LogLevel::kWarning : os::LogLevel::kInfo, "group",
          "a connection was refused: {}", why);
  client.stream.queue(pack_hello_refusal(why));
  static_cast<void>(flush(client));  // what it does not take now it is not told
  drop(id, client, "it was sent away: " + why, false);
}

void MessageServer::look_for_silence(os::Clock::time_point now) {
  for (auto& [id, client] : clients_) {
    const auto silent = now - client.stream.heard();
    if (client.admitted && silent > kLongestSilence) {
      drop(id, client,
           fmt::format("it has not been heard for {:.1f} s: it was stopped, or its host or the "
                       "network to it is gone",
                       std::chrono::duration<double>(silent).count()),
           false);
    } else if (!client.admitted && now - client.since > kToSayHello) {
      client.gone = true;
    }
  }
}

/// Whether it is there.
bool MessageServer::flush(Client& client) {
  const std::uint64_t before = client.stream.sent_bytes();
  bool there = false;
  try {
    there = client.stream.flush();
  } catch (const Error&) {  // then it is not there
  }
  sent_.fetch_add(client.stream.sent_bytes() - before, std::memory_order_relaxed);
  return there;
}

void MessageServer::flush_all() {
  for (auto& [id, client] : clients_) {
    if (!client.gone && !flush(client))
      drop(id, client, "its connection has ended: it was killed, or ended without a farewell",
           false);
  }
}

/// Where a connection is closed with something unread, its kernel drops what the other end has not
/// taken yet. So they are heard until they have gone, too.
void MessageServer::say_farewell() {
  const auto farewell = std::make_shared<const std::vector<std::byte>>(pack(farewell_));
  for (auto& [id, client] : clients_) {
    if (client.admitted) client.stream.queue(farewell);
    client.gone |= !client.admitted;
  }
  const auto deadline = os::deadline_after(kToTakeLeave);
  for (;;) {
    flush_all();
    std::vector<pollfd> entries;
    for (auto& [id, client] : clients_) {
      see_off(client);
      if (!client.gone) entries.push_back({client.stream.fd(), client.stream.events(), 0});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(os::time_left(deadline));
    if (entries.empty() || left.count() == 0) return;
    ::poll(entries.data(), entries.size(), static_cast<int>(left.count()));
  }
}

void MessageServer::see_off(Client& client) {
  if (client.gone) return;
  if (client.stream.waiting() == 0) client.stream.end_sending();
  try {
    client.gone = !client.stream.drop_received();
  } catch (const Error&) {
    client.gone = true;
  }
}

}  // namespace shoal::group
