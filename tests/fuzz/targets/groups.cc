// Ranks that speak to each other: what is said, who is let in, and what a watch hears.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <deque>
#include <thread>

#include "../input.h"
#include "shoal/group/messages.h"
#include "shoal/group/peer_lost.h"
#include "shoal/group/rendezvous/reception.h"
#include "shoal/group/rendezvous/rendezvous.h"
#include "shoal/group/sha256.h"
#include "shoal/group/watch.h"
#include "shoal/os/error.h"
#include "shoal/os/eventfd.h"
#include "shoal/os/log.h"
#include "shoal/os/socket/stream.h"
#include "shoal/process/codec.h"

namespace shoal::fuzz {
namespace {

using group::Challenge;
using group::Greeting;
using group::Link;
using group::MessageKind;

enum class What : std::uint8_t { kMessages, kReception, kWatch };

const std::string kSecret = "secret";
constexpr int kMostActs = 32;

/// With the seal of one who knows the secret.
Bytes sealed(std::span<const std::byte> body, const Challenge& against) {
  const Bytes challenge = group::pack(Challenge{});
  const std::string version = process::ByteReader(std::span(challenge).subspan(1)).text();
  const Bytes whole = Output().put(against).put_text(version).put_bytes(body).take();
  return Output()
      .put_bytes(body)
      .put(group::hmac_sha256(std::as_bytes(std::span(kSecret)), whole))
      .take();
}

void read_message(std::span<const std::byte> bytes) {
  switch (group::kind_of(bytes)) {
    case MessageKind::kChallenge:
      return static_cast<void>(group::unpack_challenge(bytes));
    case MessageKind::kGreeting: {
      const Greeting greeting = group::unpack_greeting(sealed(bytes, {}), {}, kSecret);
      const Greeting again =
          group::unpack_greeting(group::pack(greeting, {}, kSecret), {}, kSecret);
      SHOAL_CHECK(again.members == greeting.members, "a greeting is what was written");
      return;
    }
    case MessageKind::kWelcome:
      return static_cast<void>(group::unpack_welcome(sealed(bytes, {}), {}, kSecret));
    case MessageKind::kRefused:
      return static_cast<void>(group::unpack_refusal(bytes));
    case MessageKind::kLost:
      return static_cast<void>(group::unpack_loss(bytes));
    case MessageKind::kFarewell:
      return static_cast<void>(group::unpack_farewell(bytes));
    default:
      static_cast<void>(group::unpack_greeting(bytes, {}, kSecret));
  }
}

/// A TCP connection: ours, and the end of a host that may say anything.
struct Connection {
  os::Stream ours;
  os::Fd theirs;
};

Connection connect() {
  static auto* const listener = new os::StreamListener(*os::StreamListener::bind(true, 0));
  os::Fd theirs(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(listener->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const linger at_once{1, 0};  // no port stays behind
  ::setsockopt(theirs.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  if (::connect(theirs.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw SystemError("connect to this process");
  auto ours = listener->accept(os::deadline_after(std::chrono::seconds(5)));
  return {std::move(*ours), std::move(theirs)};
}

void say(const os::Fd& to, std::span<const std::byte> bytes) {
  static_cast<void>(!::send(to.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

Bytes framed(std::span<const std::byte> bytes) {
  return Output().put(static_cast<std::uint32_t>(bytes.size())).put_bytes(bytes).take();
}

/// What one that was let in was challenged with.
Challenge challenge_to(const os::Fd& guest) {
  const std::size_t bytes = framed(group::pack(Challenge{})).size();
  Bytes message(bytes);
  if (::recv(guest.get(), message.data(), bytes, MSG_DONTWAIT) != static_cast<ssize_t>(bytes))
    return {};
  return group::unpack_challenge(std::span(message).subspan(4));
}

/// Guests that come, speak and go as the input says.
void receive(Input input) {
  std::deque<Link> coming;
  std::vector<os::Fd> outside;
  os::EventFd bell;
  bell.notify();
  group::Reception reception(
      bell.fd(),
      [&]() -> std::optional<Link> {
        if (coming.empty()) return {};
        Link link = std::move(coming.front());
        coming.pop_front();
        return link;
      },
      [](const Greeting& guest) {
        return guest.size == 4 && !guest.members.empty() ? "" : "not one of us";
      },
      kSecret);
  const auto look = [&] {
    int rounds = 0;
    static_cast<void>(reception.admit_until([&] { return ++rounds > 3; },
                                            os::deadline_after(std::chrono::seconds(5)), [] {}));
  };
  for (int acts = 0; acts < kMostActs && !input.empty(); ++acts) {
    const auto action = input.take<std::uint8_t>() % 6;
    if (action == 0 && outside.size() < 4) {
      Connection fresh = connect();
      coming.emplace_back(std::move(fresh.ours));
      outside.push_back(std::move(fresh.theirs));
      int rounds = 0;
      static_cast<void>(reception.admit_until([&] { return ++rounds > 1 && coming.empty(); },
                                              os::deadline_after(std::chrono::seconds(5)), [] {}));
      continue;
    }
    if (outside.empty()) continue;
    const os::Fd& guest = outside[input.below(outside.size())];
    switch (action) {
      case 1:
        say(guest, input.take_part());
        break;
      case 2:
        say(guest, framed(input.take_part()));
        break;
      case 3:
        say(guest, framed(sealed(input.take_part(), challenge_to(guest))));
        break;
      case 4:
        ::shutdown(guest.get(), SHUT_WR);
        break;
      default:
        look();
    }
  }
  look();
  for (const group::Guest& guest : reception.guests())
    SHOAL_CHECK(guest.greeting.has_value(), "who is there was admitted");
}

/// A rank that sends anything to the watch of another.
void watch(Input input) {
  auto [ours, theirs] = os::SeqPacket::pair();
  std::vector<group::Neighbour> children;
  children.push_back({1, Link(std::move(ours))});
  std::atomic<bool> lost = false;
  group::Watch watch(0, {{0, "a", 1}, {1, "a", 2}}, {}, std::move(children), [&] { lost = true; });
  for (int acts = 0; acts < kMostActs && !input.empty(); ++acts) {
    if (theirs.send(input.take_part(), {}, os::Clock::now()) != os::SendOutcome::kSent) break;
  }
  theirs.shutdown();
  const std::array needed{1};
  try {
    for (int looks = 0; looks < 8 && !lost; ++looks) {
      watch.check(needed);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    watch.check(needed);
  } catch (const group::PeerLost&) {
  }
}

void read(Input input) {
  switch (input.take<std::uint8_t>() % 8) {
    case 0:
      return receive(input);
    case 1:
      return watch(input);
    default:
      return read_message(input.rest());
  }
}

Output of(What what) {
  return Output().put(static_cast<std::uint8_t>(what == What::kReception ? 0
                                                : what == What::kWatch   ? 1
                                                                         : 2));
}

Bytes unsealed(Bytes message) {
  message.resize(message.size() - sizeof(group::Digest));
  return message;
}

}  // namespace

std::vector<Bytes> seeds() {
  os::set_log_level(os::LogLevel::kOff);
  const Greeting greeting{.attempt = "run 7",
                          .rank = 2,
                          .size = 4,
                          .local_rank = 0,
                          .for_data = true,
                          .members = {{2, "host-b", 71}, {3, "host-b", 72}},
                          .challenge = {}};
  const group::Welcome welcome{.members = {{0, "a", 1}, {1, "b", 2}}, .hosts = {{0}, {1}}};
  const Bytes body = unsealed(group::pack(greeting, {}, kSecret));
  std::vector<Bytes> all;
  for (const Bytes& message :
       {group::pack(Challenge{}), body, unsealed(group::pack(welcome, {}, kSecret)),
        group::pack_refusal("no"), group::pack(group::Loss{1, "stopped", 4.5}),
        group::pack_farewell(1)}) {
    all.push_back(of(What::kMessages).put_bytes(message).take());
    all.push_back(of(What::kWatch).put_part(message).put_part(message).take());
  }
  const std::uint8_t comes = 0, frame = 2, seal = 3, goes = 4, looks = 5;
  all.push_back(of(What::kReception)
                    .put(comes)
                    .put(seal)
                    .put(std::uint16_t{0})
                    .put_part(body)
                    .put(comes)
                    .put(looks)
                    .take());
  all.push_back(of(What::kReception)
                    .put(comes)
                    .put(comes)
                    .put(frame)
                    .put(std::uint16_t{1})
                    .put_part(body)
                    .put(goes)
                    .put(std::uint16_t{0})
                    .take());
  return all;
}

}  // namespace shoal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return shoal::fuzz::refused_at_most([&] { shoal::fuzz::read({data, size}); });
}
