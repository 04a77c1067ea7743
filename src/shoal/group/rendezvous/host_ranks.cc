#include "shoal/group/rendezvous/host_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "shoal/group/rendezvous/roster.h"
#include "shoal/group/sha256.h"
#include "shoal/os/error.h"
#include "shoal/os/socket/named_channel.h"

namespace shoal::group {
namespace {

/// The name of the Unix socket of a host's first rank.
std::string channel_name(const Launch& launch) {
  const auto key = fmt::format("{}/{}/{}", launch.attempt, launch.node,
                               launch.one_host() ? "" : std::to_string(launch.local_size));
  const Digest digest = sha256(std::as_bytes(std::span(key)));
  std::string hex;
  for (std::size_t i = 0; i < 16; ++i)
    hex += fmt::format("{:02x}", std::to_integer<int>(digest[i]));
  return fmt::format("shoal/group/{}/{}", ::geteuid(), hex);
}

os::ChannelListener listen(const Launch& launch, Patience& patience) {
  const std::string name = channel_name(launch);
  auto listener = os::ChannelListener::bind(name);
  while (!listener) {  // one of an attempt that has not ended yet
    patience.pause("the name of this group on this host is taken by another process");
    listener = os::ChannelListener::bind(name);
  }
  return std::move(*listener);
}

}  // namespace

HostRanks::HostRanks(const Launch& launch, Patience& patience) : patience_(patience) {
  if (launch.local_size == 1) return;
  os::ChannelListener listener = listen(launch, patience);
  Reception reception(
      listener.fd(),
      [&]() -> std::optional<Link> {
        auto channel = listener.accept(os::Deadline::min());
        return channel ? std::optional<Link>(std::move(*channel)) : std::nullopt;
      },
      [&](const Greeting& guest) { return local_objection(launch, guest, reception.guests()); },
      "");
  auto& guests = reception.guests();
  const auto complete = [&] { return admitted(guests) + 1 == launch.local_size; };
  const auto missing = [&] { return missing_locals(launch, guests); };
  if (!reception.admit_until(complete, patience.deadline(),
                             [&] { patience.tell_missing(missing); }))
    throw TimedOut(fmt::format("{}: of the {} ranks of this host {} did not come within {} s",
                               patience.describe(), launch.local_size, missing(),
                               patience.seconds()));
  std::ranges::sort(guests, {},
                    [](const Guest& guest) { return guest.greeting.value().local_rank; });
  guests_ = std::move(guests);
}

std::vector<Member> HostRanks::members() const {
  std::vector<Member> members;
  for (const Guest& guest : guests_) members.push_back(guest.greeting->members.front());
  return members;
}

void HostRanks::check() {
  os::Message message;
  for (Guest& guest : guests_)
    if (guest.link.recv(message, os::Deadline::min()) == os::RecvOutcome::kClosed)
      throw Error(fmt::format("{}: rank {} ended before all others had come", patience_.describe(),
                              guest.greeting->rank));
}

std::vector<Neighbour> HostRanks::welcome(const Welcome& welcome, const shm::Arena& arena) {
  std::vector<Neighbour> children;
  for (Guest& guest : guests_) {
    const std::array<int, 1> fds{arena.fd()};
    // Who has ended meanwhile is found lost by the group.
    static_cast<void>(
        guest.link.send(pack(welcome, {}, ""), os::deadline_after(Patience::kAnswer), fds));
    children.push_back({guest.greeting->rank, std::move(guest.link)});
  }
  return children;
}

Meeting follow_first_rank(const Launch& launch, const Member& me, Approach& approach) {
  const std::string name = channel_name(launch);
  const std::string whom = "the first rank of this host";
  Greeting greets = approach.greeting(false);
  greets.members = {me};
  Admitted admitted = approach.seek(
      [&]() -> std::optional<Link> {
        auto channel = os::connect_channel(name);
        return channel ? std::optional<Link>(std::move(*channel)) : std::nullopt;
      },
      greets, whom);
  os::Message message;
  const Welcome welcome = approach.await_welcome(admitted, message, whom, [] {});
  if (message.fds.size() != 1) throw Error("a welcome on one host without its memory");
  Meeting meeting;
  meeting.members = welcome.members;
  meeting.hosts = welcome.hosts;
  meeting.arena = shm::Arena::attach(std::move(message.fds.front()));
  for (const auto& ranks : welcome.hosts)
    if (std::ranges::find(ranks, launch.rank) != ranks.end())
      meeting.parent.emplace(Neighbour{ranks.front(), std::move(admitted.link)});
  if (!meeting.parent) throw Error("a welcome to a group that this rank is not in");
  return meeting;
}

}  // namespace shoal::group
