#include "shoal/group/rendezvous/hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "shoal/group/rendezvous/roster.h"
#include "shoal/os/error.h"
#include "shoal/os/log.h"

namespace shoal::group {
namespace {

constexpr std::chrono::seconds kReach{10};  // for hosts to reach each other, once all are there

/// Rank 0's own name may stand for the loopback on its machine, and for an address of the network on
/// all others, which have the secret.
bool is_name_of_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

}  // namespace

bool rank_0_is_on_loopback(const Launch& launch, const Patience& patience) {
  try {
    return os::is_loopback(launch.address);
  } catch (const Error& error) {
    throw Error(
        fmt::format("{}: {}; that is where rank 0 is said to be: name another host by "
                    "SHOAL_GROUP_ADDR=host:port",
                    patience.describe(), error.what()));
  }
}

Hosts::Hosts(const Launch& launch, const JoinOptions& options, Patience& patience,
             Approach& approach, Here here)
    : launch_(launch),
      options_(options),
      patience_(patience),
      approach_(approach),
      here_(std::move(here)),
      on_loopback_(here_.rank_0_on_loopback &&
                   (options.secret.empty() || is_name_of_loopback(launch.address))) {}

// Where others come to

std::optional<os::StreamListener> Hosts::listen_at(int port) const {
  return on_loopback_ ? os::StreamListener::bind_host(launch_.address, port)
                      : os::StreamListener::bind(false, port);
}

os::StreamListener Hosts::listen() const {
  for (const int port : launch_.ports)
    if (auto listener = listen_at(port)) return std::move(*listener);
  throw Error(
      fmt::format("{}: none of the ports {} of this host is free; name another by "
                  "SHOAL_GROUP_ADDR=host:port",
                  patience_.describe(), fmt::join(launch_.ports, ", ")));
}

Reception Hosts::open(os::StreamListener& listener, Reception::Objection objection) const {
  return Reception(
      listener.fd(),
      [&listener]() -> std::optional<Link> {
        auto stream = listener.accept(os::Deadline::min());
        return stream ? std::optional<Link>(std::move(*stream)) : std::nullopt;
      },
      std::move(objection), options_.secret);
}

// Rank 0

Welcome Hosts::receive_hosts(Meeting& meeting) {
  os::StreamListener listener = listen();
  Reception reception =
      open(listener, [&](const Greeting& guest) { return remote_objection(launch_, guest); });
  auto& guests = reception.guests();
  const auto count = [&](bool for_data) {
    std::size_t ranks = here_.members.size();
    for (const Guest& guest : guests)
      if (guest.greeting && guest.greeting->for_data == for_data)
        ranks += guest.greeting->members.size();
    return static_cast<int>(ranks);
  };
  const auto complete = [&] { return count(false) == launch_.size && count(true) == launch_.size; };
  const auto missing = [&] { return missing_ranks(launch_, here_.members, guests); };
  if (!reception.admit_until(complete, patience_.deadline(), [&] {
        patience_.tell_missing(missing);
        here_.check();
      }))
    throw TimedOut(fmt::format("{}: {} did not come within {} s", patience_.describe(), missing(),
                               patience_.seconds()));
  Welcome welcome = welcome_hosts(guests, meeting);
  all_hosts_met(welcome, meeting);
  return welcome;
}

Welcome Hosts::welcome_hosts(std::vector<Guest>& guests, Meeting& meeting) {
  std::vector<std::vector<Member>> hosts{here_.members};
  std::ranges::sort(guests, {}, [](const Guest& guest) { return guest.greeting.value().rank; });
  for (const Guest& guest : guests)
    if (!guest.greeting->for_data) hosts.push_back(guest.greeting->members);
  Welcome welcome = welcome_of(hosts, launch_.size, patience_.describe());
  meeting.data.resize(1);
  welcome.places.resize(1);
  for (Guest& guest : guests) {
    if (!guest.greeting->for_data) continue;
    meeting.data.push_back(guest.link.take_stream());
    welcome.places.push_back({on_loopback_ ? launch_.address : meeting.data.back().peer_address(),
                              guest.greeting->port});
  }
  for (Guest& guest : guests) {
    if (guest.greeting->for_data) continue;
    static_cast<void>(guest.link.send(pack(welcome, guest.greeting->challenge, options_.secret),
                                      os::deadline_after(Patience::kAnswer)));
    meeting.children.push_back({guest.greeting->rank, std::move(guest.link)});
  }
  return welcome;
}

// The first rank of another host

Welcome Hosts::find_root(Meeting& meeting) {
  std::size_t next = 0;
  const auto to_next_port = [&]() -> std::optional<Link> {
    const int port = launch_.ports[next++ % launch_.ports.size()];
    auto stream = os::Stream::connect(
        launch_.address, port,
        std::min(patience_.deadline(), os::deadline_after(Patience::kAnswer)), options_.look);
    return stream ? std::optional<Link>(std::move(*stream)) : std::nullopt;
  };
  const std::string whom =
      fmt::format("rank 0 at {}, port {}", launch_.address, fmt::join(launch_.ports, ", "));
  auto listener = listen_at(0);
  if (!listener) throw Error(patience_.describe() + ": no port of this host is free");
  Greeting greets = approach_.greeting(false);
  greets.members = here_.members;
  Admitted messages = approach_.seek(to_next_port, greets, whom);
  --next;  // the port that answered
  greets = approach_.greeting(true);
  greets.members = here_.members;
  greets.port = listener->port();
  Admitted data = approach_.seek(to_next_port, greets, whom);
  os::Message message;
  const Welcome welcome = approach_.await_welcome(messages, message, "rank 0", here_.check);
  meeting.parent.emplace(Neighbour{0, std::move(messages.link)});
  meet_hosts(welcome, *listener, meeting);
  meeting.data[0] = data.link.take_stream();
  all_hosts_met(welcome, meeting);
  return welcome;
}

/// Connects to the hosts below this one, and waits for those above: all in meeting.data, or, where one
/// cannot be reached, none.
void Hosts::meet_hosts(const Welcome& welcome, os::StreamListener& listener, Meeting& meeting) {
  const std::size_t hosts = welcome.hosts.size();
  std::size_t mine = 1;
  while (mine < hosts && welcome.hosts[mine].front() != launch_.rank) ++mine;
  meeting.data.resize(hosts);
  if (welcome.places.size() != hosts || mine == hosts)
    throw Error(patience_.describe() + ": rank 0 welcomed to a group of other hosts");
  if (options_.star) return;
  const os::Deadline until = std::min(patience_.deadline(), os::deadline_after(kReach));
  try {
    std::vector<Admitted> below;
    for (std::size_t host = 1; host < mine; ++host) {
      Greeting greets = approach_.greeting(true);
      greets.members = {here_.members.front()};
      below.push_back(approach_.visit(welcome.places[host], greets, until));
    }
    receive_above(welcome, mine, listener, until, meeting);
    for (std::size_t host = 1; host < mine; ++host) {
      Admitted& admitted = below[host - 1];
      os::Message message;
      if (patience_.await(admitted.link, message, until) != os::RecvOutcome::kMessage)
        throw Error(fmt::format("rank {} did not answer", welcome.hosts[host].front()));
      static_cast<void>(unpack_welcome(message.bytes, admitted.mine, options_.secret));
      meeting.data[host] = admitted.link.take_stream();
    }
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    os::log(os::LogLevel::kWarning, "group",
            "{}: not all hosts can reach each other, so data goes through rank 0: {}",
            patience_.describe(), error.what());
    meeting.data.clear();
    meeting.data.resize(hosts);
  }
}

/// Those of all hosts above, which are told then that this is no other.
void Hosts::receive_above(const Welcome& welcome, std::size_t mine, os::StreamListener& listener,
                          os::Deadline until, Meeting& meeting) {
  const std::size_t hosts = welcome.hosts.size();
  const auto host_of = [&](int rank) {
    std::size_t host = mine + 1;
    while (host < hosts && welcome.hosts[host].front() != rank) ++host;
    return host;
  };
  Reception reception = open(listener, [&](const Greeting& guest) {
    std::string objection = remote_objection(launch_, guest);
    if (objection.empty() && (!guest.for_data || host_of(guest.rank) == hosts))
      objection = fmt::format("rank {} has nothing to do here", guest.rank);
    return objection;
  });
  auto& guests = reception.guests();
  const auto complete = [&] {
    return static_cast<std::size_t>(admitted(guests)) + mine + 1 == hosts;
  };
  if (!reception.admit_until(complete, until, [&] { patience_.look(); }))
    throw Error("other hosts did not come");
  for (Guest& guest : guests) {
    static_cast<void>(guest.link.send(pack(welcome, guest.greeting->challenge, options_.secret),
                                      os::deadline_after(Patience::kAnswer)));
    meeting.data[host_of(guest.greeting->rank)] = guest.link.take_stream();
  }
}

/// Whether all hosts have met, which rank 0 tells; where they have not, all do without.
void Hosts::all_hosts_met(const Welcome& welcome, Meeting& meeting) {
  const std::size_t hosts = welcome.hosts.size();
  const auto until = os::deadline_after(kReach + 2 * Patience::kAnswer);
  const auto must = [&](std::size_t host, os::StreamOutcome outcome) {
    if (outcome != os::StreamOutcome::kDone)
      throw Error(fmt::format("{}: rank {} ended, or did not answer, after all had come",
                              patience_.describe(), welcome.hosts[host].front()));
  };
  std::byte met{1};
  if (launch_.rank == 0) {
    for (std::size_t host = 1; host < hosts; ++host) {
      std::byte its{};
      must(host, patience_.await(meeting.data[host], its, until));
      met &= its;
    }
    for (std::size_t host = 1; host < hosts; ++host)
      must(host, meeting.data[host].send(std::span(&met, 1), until));
    meeting.all_met = met == std::byte{1};
    return;
  }
  const auto there = std::ranges::count_if(
      meeting.data, [](const os::Stream& stream) { return static_cast<bool>(stream); });
  if (there + 1 != static_cast<std::ptrdiff_t>(hosts)) met = std::byte{0};
  must(0, meeting.data[0].send(std::span(&met, 1), until));
  must(0, patience_.await(meeting.data[0], met, until));
  meeting.all_met = met == std::byte{1};
  if (meeting.all_met) return;
  for (std::size_t host = 1; host < hosts; ++host) meeting.data[host] = os::Stream();
}

}  // namespace shoal::group
