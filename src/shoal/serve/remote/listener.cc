#include "shoal/serve/remote/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "shoal/os/error.h"
#include "shoal/os/log.h"
#include "shoal/os/process/making_process.h"
#include "shoal/serve/remote/guest.h"
#include "shoal/serve/server.h"
#include "shoal/shm/board.h"

namespace shoal::serve {
namespace {

using group::MessageServer;
using Bytes = std::vector<std::byte>;

/// One batch is computed while the next one comes.
constexpr std::uint32_t kMostUnderWay = 2;

/// What the board counts, in its order.
enum Count : std::uint8_t { kHosts, kJoined, kLost, kRefused, kRows, kSentBytes, kReceivedBytes };
const std::array<std::string, 7> kCounts{"relays", "joined",     "lost",          "refused",
                                         "rows",   "sent_bytes", "received_bytes"};

Terms with_limits(Terms terms) {
  terms.most_under_way = kMostUnderWay;
  terms.most_rows = std::min(terms.max_batch, ServerOptions::kMostSlots / kMostUnderWay);
  return terms;
}

}  // namespace

struct Listener::Impl final : MessageServer::Owner {
  struct Visit {
    std::string who;
    std::unique_ptr<Guest> guest;
  };

  explicit Impl(Options its)
      : options(std::move(its)),
        terms(with_limits(options.terms)),
        board("listening service", kCounts),
        server({.host = options.host,
                .port = options.port,
                .secret = options.secret,
                .longest = kLongestRemote}) {
    board.set_title(fmt::format("{}:{}", options.host, server.port()));
  }

  // The server's thread

  Bytes admit(MessageServer::Id id, const group::Hello& hello) override {
    if (hello.purpose != kAskModels) {
      throw Error(
          fmt::format("it comes to {}; here is a model service, which shoal.ModelService.connect() "
                      "asks",
                      hello.purpose));
    }
    if (hello.version != options.version) {
      throw Error(fmt::format("it has Shoal {}, the model service {}: install the same on both",
                              hello.version, options.version));
    }
    auto guest = std::make_unique<Guest>(options.address, terms, [this, id](Bytes message) {
      {
        const std::lock_guard lock(mutex);
        going.emplace_back(id, std::make_shared<const Bytes>(std::move(message)));
      }
      server.wake();
    });
    const std::string who = fmt::format("process {} on {}", hello.pid, hello.host);
    visits.emplace(id, Visit{who, std::move(guest)});
    ++joined;
    os::log(os::LogLevel::kInfo, "serve", "{} asks the models", who);
    return pack_terms(terms);
  }

  void receive(MessageServer::Id id, Bytes& message) override {
    try {
      Guest& guest = *visits.at(id).guest;
      if (server.waiting(id) > most_waiting(guest))
        throw Error("it does not take the replies to what it has sent");
      guest.receive(message);
    } catch (...) {
      ++refused;
      throw;
    }
  }

  /// Messages for a relay that keeps to the terms: the replies to what it has sent, the answer to an
  /// opening, and a heartbeat.
  std::size_t most_waiting(const Guest& guest) const {
    return guest.queues() * terms.most_under_way + 2;
  }

  void lose(MessageServer::Id id, const std::string& cause, bool left) override {
    const auto found = visits.find(id);
    if (found == visits.end()) return;
    if (!left) ++lost;
    os::log(left ? os::LogLevel::kInfo : os::LogLevel::kWarning, "serve", "{} {}: {}",
            found->second.who, left ? "has left" : "is lost", cause);
    found->second.guest->end();
    leaving.push_back(std::move(found->second.guest));
    visits.erase(found);
  }

  void look() override {
    std::vector<std::pair<MessageServer::Id, group::SharedBytes>> now;
    {
      const std::lock_guard lock(mutex);
      now.swap(going);
    }
    for (auto& [id, message] : now) server.send(id, std::move(message));
    std::erase_if(leaving, [&](const std::unique_ptr<Guest>& guest) {
      if (!guest->has_ended()) return false;
      rows_of_left += guest->rows();
      return true;
    });
    count();
  }

  void count() noexcept {
    const auto set = [&](Count which, std::uint64_t value) {
      board[which].set(static_cast<std::int64_t>(value));
    };
    std::uint64_t rows = rows_of_left;
    for (const auto& guest : leaving) rows += guest->rows();
    for (const auto& [id, visit] : visits) rows += visit.guest->rows();
    set(kHosts, visits.size());
    set(kJoined, joined);
    set(kLost, lost);
    set(kRefused, refused);
    set(kRows, rows);
    set(kSentBytes, server.sent_bytes());
    set(kReceivedBytes, server.received_bytes());
  }

  const os::MakingProcess maker;
  const Options options;
  const Terms terms;
  shm::Board board;
  std::mutex mutex;
  std::vector<std::pair<MessageServer::Id, group::SharedBytes>> going;  // under the mutex

  // The server's thread's, and after its end the owner's.
  std::map<MessageServer::Id, Visit> visits;
  std::vector<std::unique_ptr<Guest>> leaving;
  std::uint64_t joined = 0, lost = 0, refused = 0, rows_of_left = 0;

  std::mutex closing;
  MessageServer server;  // its thread uses all of the above
};

Listener::Listener(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Listener::~Listener() {
  if (impl_->maker.is_this())
    close("the model service has ended");
  else
    os::abandon(std::move(impl_));
}

void Listener::start() { impl_->server.start(*impl_); }
int Listener::port() const { return impl_->server.port(); }

void Listener::close(const std::string& why) noexcept {
  Impl& me = *impl_;
  if (!me.maker.is_this()) return;
  const std::lock_guard lock(me.closing);
  me.server.close({why, true});
  for (const auto& [id, visit] : me.visits) visit.guest->end();
  me.visits.clear();
  me.leaving.clear();
}

}  // namespace shoal::serve
