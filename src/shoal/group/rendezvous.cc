#include "shoal/group/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

#include "shoal/group/messages.h"
#include "shoal/group/reception.h"
#include "shoal/group/seal.h"
#include "shoal/group/sha256.h"
#include "shoal/os/error.h"
#include "shoal/os/log.h"
#include "shoal/os/socket/named_channel.h"

namespace shoal::group {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds kAnswer{5};      // for what a peer says at once
constexpr std::chrono::seconds kTellAfter{10};  // who is missing
constexpr std::chrono::seconds kHosts{10};      // for hosts to reach each other, once all are there
constexpr std::chrono::milliseconds kLook{400};  // between two looks
constexpr std::chrono::milliseconds kShortestPause{2}, kLongestPause{100};

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

std::string attempt_of(const Launch& launch) {
  return fmt::format("join a group of {} as rank {} ({}, attempt '{}')", launch.size, launch.rank,
                     launch.launcher.empty() ? "by arguments" : launch.launcher, launch.attempt);
}

bool rank_0_is_on_loopback(const Launch& launch) {
  try {
    return os::is_loopback(launch.address);
  } catch (const Error& error) {
    throw Error(
        fmt::format("{}: {}; that is where rank 0 is said to be: name another host by "
                    "SHOAL_GROUP_ADDR=host:port",
                    attempt_of(launch), error.what()));
  }
}

/// Whether no rank can come from another machine. Rank 0's own name may stand for the loopback on its
/// machine, and for an address of the network on all others, which have the secret.
bool stays_on_loopback(const Launch& launch, const JoinOptions& options) {
  const std::string& address = launch.address;
  const bool says_so = address == "localhost" || address.starts_with("127.") || address == "::1";
  return rank_0_is_on_loopback(launch) && (options.secret.empty() || says_so);
}

class Rendezvous {
 public:
  Rendezvous(const Launch& launch, const JoinOptions& options, std::size_t arena_bytes)
      : launch_(launch),
        options_(options),
        arena_bytes_(arena_bytes),
        deadline_(os::deadline_after(options.timeout)),
        answer_deadline_(deadline_ > os::kNoDeadline - kAnswer ? os::kNoDeadline
                                                               : deadline_ + kAnswer),
        on_loopback_(!launch.one_host() && stays_on_loopback(launch, options)),
        me_{launch.rank, this_host(), static_cast<int>(::getpid())} {}

  Meeting run() {
    if (launch_.local_rank == 0) {
      lead();
    } else {
      follow();
    }
    return std::move(meeting_);
  }

 private:
  /// A connection on which the other side has admitted this rank.
  struct Admission {
    Link link;
    Challenge mine{};  // what the other side is to seal its welcome over
  };
  using Connect = std::function<std::optional<Link>()>;

  std::string describe() const { return attempt_of(launch_); }

  Greeting greeting(bool for_data) const {
    return {.attempt = launch_.attempt,
            .rank = launch_.rank,
            .size = launch_.size,
            .local_rank = launch_.local_rank,
            .for_data = for_data,
            .members = {},
            .challenge = make_challenge()};
  }

  // --- The first rank of a host

  void lead() {
    std::vector<Guest> locals = receive_locals();
    std::vector<Member> here{me_};
    for (const Guest& guest : locals) here.push_back(guest.greeting->members.front());
    Welcome welcome;
    if (launch_.one_host()) {
      welcome = welcome_of({here});
    } else if (launch_.rank == 0) {
      welcome = receive_hosts(here, locals);
    } else {
      welcome = find_root(here, locals);
    }
    meeting_.members = welcome.members;
    meeting_.hosts = welcome.hosts;
    if (launch_.local_size > 1) meeting_.arena = shm::Arena::create("group", arena_bytes_);
    for (Guest& guest : locals) {
      const std::array<int, 1> fds{meeting_.arena.fd()};
      // Who has ended meanwhile is found lost by the group.
      static_cast<void>(guest.link.send(pack(welcome, {}, ""), os::deadline_after(kAnswer), fds));
      meeting_.children.push_back({guest.greeting->rank, std::move(guest.link)});
    }
  }

  /// All other ranks of this host, by local rank.
  std::vector<Guest> receive_locals() {
    if (launch_.local_size == 1) return {};
    const std::string name = channel_name(launch_);
    auto listener = os::ChannelListener::bind(name);
    while (!listener) {  // one of an attempt that has not ended yet
      pause("the name of this group on this host is taken by another process");
      listener = os::ChannelListener::bind(name);
    }
    Reception reception(
        listener->fd(),
        [&]() -> std::optional<Link> {
          auto channel = listener->accept(os::Deadline::min());
          return channel ? std::optional<Link>(std::move(*channel)) : std::nullopt;
        },
        [&](const Greeting& guest) { return local_objection(guest, reception.guests()); }, "");
    auto& guests = reception.guests();
    const auto complete = [&] { return admitted(guests) + 1 == launch_.local_size; };
    const auto tell = [&] { tell_missing([&] { return missing_locals(guests); }); };
    if (!reception.admit_until(complete, deadline_, tell))
      throw TimedOut(fmt::format("{}: of the {} ranks of this host {} did not come within {} s",
                                 describe(), launch_.local_size, missing_locals(guests),
                                 seconds()));
    std::ranges::sort(guests, {},
                      [](const Guest& guest) { return guest.greeting.value().local_rank; });
    return std::move(guests);
  }

  std::string local_objection(const Greeting& guest, const std::vector<Guest>& others) const {
    if (guest.attempt != launch_.attempt) return other_attempt(guest);
    if (guest.size != launch_.size) return other_size(guest);
    if (guest.members.size() != 1 || guest.members.front().rank != guest.rank || guest.rank < 0 ||
        guest.rank >= launch_.size)
      return fmt::format("rank {} is none of {}", guest.rank, launch_.size);
    if (guest.local_rank < 1 || guest.local_rank >= launch_.local_size)
      return fmt::format("local rank {} is none of {}", guest.local_rank, launch_.local_size);
    for (const Guest& other : others)
      if (other.greeting && other.greeting->local_rank == guest.local_rank)
        return fmt::format("local rank {} is rank {} already, so it is not rank {}",
                           guest.local_rank, other.greeting->rank, guest.rank);
    return "";
  }

  std::string other_attempt(const Greeting& guest) const {
    return fmt::format("here is attempt '{}', and rank {} is of attempt '{}'", launch_.attempt,
                       guest.rank, guest.attempt);
  }

  std::string other_size(const Greeting& guest) const {
    return fmt::format("here is a group of {}, and rank {} is of one of {}", launch_.size,
                       guest.rank, guest.size);
  }

  static int admitted(const std::vector<Guest>& guests) {
    return static_cast<int>(std::ranges::count_if(
        guests, [](const Guest& guest) { return guest.greeting.has_value(); }));
  }

  std::string missing_locals(const std::vector<Guest>& guests) const {
    std::vector<int> missing;
    for (int local = 1; local < launch_.local_size; ++local)
      if (std::ranges::none_of(guests, [&](const Guest& guest) {
            return guest.greeting && guest.greeting->local_rank == local;
          }))
        missing.push_back(local);
    return fmt::format("local rank{} {}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
  }

  // --- Rank 0, between hosts

  Welcome receive_hosts(const std::vector<Member>& here, std::vector<Guest>& locals) {
    os::StreamListener listener = listen();
    Reception reception =
        open_to_hosts(listener, [&](const Greeting& guest) { return remote_objection(guest); });
    auto& guests = reception.guests();
    const auto count = [&](bool for_data) {
      std::size_t ranks = here.size();
      for (const Guest& guest : guests)
        if (guest.greeting && guest.greeting->for_data == for_data)
          ranks += guest.greeting->members.size();
      return static_cast<int>(ranks);
    };
    const auto complete = [&] {
      return count(false) == launch_.size && count(true) == launch_.size;
    };
    const auto missing = [&] { return missing_ranks(here, guests); };
    if (!reception.admit_until(complete, deadline_, [&] {
          tell_missing(missing);
          check(locals);
        }))
      throw TimedOut(
          fmt::format("{}: {} did not come within {} s", describe(), missing(), seconds()));
    Welcome welcome = welcome_hosts(here, guests);
    all_hosts_met(welcome);
    return welcome;
  }

  Reception open_to_hosts(os::StreamListener& listener, Reception::Objection objection) const {
    return Reception(
        listener.fd(),
        [&listener]() -> std::optional<Link> {
          auto stream = listener.accept(os::Deadline::min());
          return stream ? std::optional<Link>(std::move(*stream)) : std::nullopt;
        },
        std::move(objection), options_.secret);
  }

  /// Where others come to; nobody where the port (0: any) is taken.
  std::optional<os::StreamListener> listen_at(int port) const {
    return on_loopback_ ? os::StreamListener::bind_host(launch_.address, port)
                        : os::StreamListener::bind(false, port);
  }

  os::StreamListener listen() {
    for (const int port : launch_.ports)
      if (auto listener = listen_at(port)) return std::move(*listener);
    throw Error(
        fmt::format("{}: none of the ports {} of this host is free; name another by "
                    "SHOAL_GROUP_ADDR=host:port",
                    describe(), fmt::join(launch_.ports, ", ")));
  }

  std::string remote_objection(const Greeting& guest) const {
    if (guest.attempt != launch_.attempt) return other_attempt(guest);
    if (guest.size != launch_.size) return other_size(guest);
    if (guest.members.empty() || guest.members.front().rank != guest.rank)
      return fmt::format("rank {} does not speak for its host", guest.rank);
    for (const Member& member : guest.members)
      if (member.rank < 1 || member.rank >= launch_.size)
        return fmt::format("rank {} is none of {}", member.rank, launch_.size);
    return "";
  }

  Welcome welcome_hosts(const std::vector<Member>& here, std::vector<Guest>& guests) {
    std::vector<std::vector<Member>> hosts{here};
    std::ranges::sort(guests, {}, [](const Guest& guest) { return guest.greeting.value().rank; });
    for (const Guest& guest : guests)
      if (!guest.greeting->for_data) hosts.push_back(guest.greeting->members);
    Welcome welcome = welcome_of(hosts);
    meeting_.data.resize(1);
    welcome.places.resize(1);
    for (Guest& guest : guests) {
      if (!guest.greeting->for_data) continue;
      meeting_.data.push_back(guest.link.take_stream());
      welcome.places.push_back(
          {on_loopback_ ? launch_.address : meeting_.data.back().peer_address(),
           guest.greeting->port});
    }
    for (Guest& guest : guests) {
      if (guest.greeting->for_data) continue;
      static_cast<void>(guest.link.send(pack(welcome, guest.greeting->challenge, options_.secret),
                                        os::deadline_after(kAnswer)));
      meeting_.children.push_back({guest.greeting->rank, std::move(guest.link)});
    }
    return welcome;
  }

  Welcome welcome_of(const std::vector<std::vector<Member>>& hosts) const {
    Welcome welcome;
    for (const auto& members : hosts) {
      auto& ranks = welcome.hosts.emplace_back();
      for (const Member& member : members) {
        ranks.push_back(member.rank);
        welcome.members.push_back(member);
      }
    }
    std::ranges::sort(welcome.members, {}, &Member::rank);
    if (!has_all(welcome))
      throw Error(
          fmt::format("{}: ranks are there twice, or missing: the launcher's variables "
                      "contradict each other",
                      describe()));
    return welcome;
  }

  /// Whether each rank is a member, in order, and on one host.
  bool has_all(const Welcome& welcome) const {
    std::vector<bool> there(static_cast<std::size_t>(launch_.size));
    std::size_t found = 0;
    for (const auto& ranks : welcome.hosts) {
      if (ranks.empty()) return false;
      for (const int rank : ranks) {
        const auto at = static_cast<std::size_t>(rank);
        if (rank < 0 || rank >= launch_.size || there[at]) return false;
        there[at] = true;
        ++found;
      }
    }
    const auto size = static_cast<std::size_t>(launch_.size);
    if (found != size || welcome.members.size() != size) return false;
    for (std::size_t rank = 0; rank < size; ++rank)
      if (welcome.members[rank].rank != static_cast<int>(rank)) return false;
    return true;
  }

  std::string missing_ranks(const std::vector<Member>& here,
                            const std::vector<Guest>& guests) const {
    std::vector<bool> there(static_cast<std::size_t>(launch_.size));
    const auto mark = [&](const std::vector<Member>& members) {
      for (const Member& member : members) there[static_cast<std::size_t>(member.rank)] = true;
    };
    mark(here);
    for (const Guest& guest : guests)
      if (guest.greeting) mark(guest.greeting->members);
    std::vector<int> missing;
    for (int rank = 0; rank < launch_.size; ++rank)
      if (!there[static_cast<std::size_t>(rank)]) missing.push_back(rank);
    return fmt::format("rank{} {}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
  }

  /// Throws when one of this host's ranks has ended.
  void check(std::vector<Guest>& locals) const {
    os::Message message;
    for (Guest& guest : locals)
      if (guest.link.recv(message, os::Deadline::min()) == os::RecvOutcome::kClosed)
        throw Error(fmt::format("{}: rank {} ended before all others had come", describe(),
                                guest.greeting->rank));
  }

  // --- Hosts among each other

  /// Connects to the hosts below this one, and waits for those above: all in meeting_.data, or,
  /// where one cannot be reached, none.
  void meet_hosts(const Welcome& welcome, os::StreamListener& listener) {
    const std::size_t hosts = welcome.hosts.size();
    std::size_t mine = 1;
    while (mine < hosts && welcome.hosts[mine].front() != launch_.rank) ++mine;
    meeting_.data.resize(hosts);
    if (welcome.places.size() != hosts || mine == hosts)
      throw Error(describe() + ": rank 0 welcomed to a group of other hosts");
    if (options_.star) return;
    const os::Deadline until = std::min(deadline_, os::deadline_after(kHosts));
    try {
      std::vector<Admission> below;
      for (std::size_t host = 1; host < mine; ++host)
        below.push_back(visit(welcome.places[host], until));
      receive_above(welcome, mine, listener, until);
      for (std::size_t host = 1; host < mine; ++host) {
        Admission& admission = below[host - 1];
        os::Message message;
        if (await(admission.link, message, until) != os::RecvOutcome::kMessage)
          throw Error(fmt::format("rank {} did not answer", welcome.hosts[host].front()));
        static_cast<void>(unpack_welcome(message.bytes, admission.mine, options_.secret));
        meeting_.data[host] = admission.link.take_stream();
      }
    } catch (const SystemError&) {
      throw;
    } catch (const Error& error) {
      os::log(os::LogLevel::kWarning, "group",
              "{}: not all hosts can reach each other, so data goes through rank 0: {}", describe(),
              error.what());
      meeting_.data.clear();
      meeting_.data.resize(hosts);
    }
  }

  /// The connection to a host below.
  Admission visit(const Place& place, os::Deadline until) {
    Greeting greets = greeting(true);
    greets.members = {me_};
    for (;;) {
      look();
      if (auto stream = os::Stream::connect(place.address, place.port, until, options_.look)) {
        Link link(std::move(*stream));
        if (introduce(link, greets)) return {std::move(link), greets.challenge};
      }
      if (os::Clock::now() >= until)
        throw Error(fmt::format("there is no way to {}, port {}", place.address, place.port));
      std::this_thread::sleep_for(kShortestPause);
    }
  }

  /// Those of all hosts above, which are told then that this is no other.
  void receive_above(const Welcome& welcome, std::size_t mine, os::StreamListener& listener,
                     os::Deadline until) {
    const std::size_t hosts = welcome.hosts.size();
    const auto host_of = [&](int rank) {
      std::size_t host = mine + 1;
      while (host < hosts && welcome.hosts[host].front() != rank) ++host;
      return host;
    };
    Reception reception = open_to_hosts(listener, [&](const Greeting& guest) {
      std::string objection = remote_objection(guest);
      if (objection.empty() && (!guest.for_data || host_of(guest.rank) == hosts))
        objection = fmt::format("rank {} has nothing to do here", guest.rank);
      return objection;
    });
    auto& guests = reception.guests();
    const auto complete = [&] {
      return static_cast<std::size_t>(admitted(guests)) + mine + 1 == hosts;
    };
    if (!reception.admit_until(complete, until, [&] { look(); }))
      throw Error("other hosts did not come");
    for (Guest& guest : guests) {
      static_cast<void>(guest.link.send(pack(welcome, guest.greeting->challenge, options_.secret),
                                        os::deadline_after(kAnswer)));
      meeting_.data[host_of(guest.greeting->rank)] = guest.link.take_stream();
    }
  }

  /// Whether all hosts have met, which rank 0 tells; where they have not, all do without.
  void all_hosts_met(const Welcome& welcome) {
    const std::size_t hosts = welcome.hosts.size();
    const auto until = os::deadline_after(kHosts + 2 * kAnswer);
    const auto must = [&](std::size_t host, os::StreamOutcome outcome) {
      if (outcome != os::StreamOutcome::kDone)
        throw Error(fmt::format("{}: rank {} ended, or did not answer, after all had come",
                                describe(), welcome.hosts[host].front()));
    };
    std::byte met{1};
    const auto told = [&] { meeting_.all_met = met == std::byte{1}; };
    if (launch_.rank == 0) {
      for (std::size_t host = 1; host < hosts; ++host) {
        std::byte its{};
        must(host, await(meeting_.data[host], its, until));
        met &= its;
      }
      for (std::size_t host = 1; host < hosts; ++host)
        must(host, meeting_.data[host].send(std::span(&met, 1), until));
      return told();
    }
    const auto there = std::ranges::count_if(
        meeting_.data, [](const os::Stream& stream) { return static_cast<bool>(stream); });
    if (there + 1 != static_cast<std::ptrdiff_t>(hosts)) met = std::byte{0};
    must(0, meeting_.data[0].send(std::span(&met, 1), until));
    must(0, await(meeting_.data[0], met, until));
    told();
    if (meeting_.all_met) return;
    for (std::size_t host = 1; host < hosts; ++host) meeting_.data[host] = os::Stream();
  }

  // --- Those who come

  void follow() {
    const std::string name = channel_name(launch_);
    Greeting greets = greeting(false);
    greets.members = {me_};
    Admission admission = seek(
        [&]() -> std::optional<Link> {
          auto channel = os::connect_channel(name);
          return channel ? std::optional<Link>(std::move(*channel)) : std::nullopt;
        },
        greets, "the first rank of this host");
    os::Message message;
    const Welcome welcome =
        await_welcome(admission, message, "the first rank of this host", "", [] {});
    if (message.fds.size() != 1) throw Error("a welcome on one host without its memory");
    meeting_.members = welcome.members;
    meeting_.hosts = welcome.hosts;
    meeting_.arena = shm::Arena::attach(std::move(message.fds.front()));
    for (const auto& ranks : welcome.hosts)
      if (std::ranges::find(ranks, launch_.rank) != ranks.end())
        meeting_.parent.emplace(Neighbour{ranks.front(), std::move(admission.link)});
    if (!meeting_.parent) throw Error("a welcome to a group that this rank is not in");
  }

  Welcome find_root(const std::vector<Member>& here, std::vector<Guest>& locals) {
    std::size_t next = 0;
    const auto to_next_port = [&]() -> std::optional<Link> {
      const int port = launch_.ports[next++ % launch_.ports.size()];
      auto stream = os::Stream::connect(
          launch_.address, port, std::min(deadline_, os::deadline_after(kAnswer)), options_.look);
      return stream ? std::optional<Link>(std::move(*stream)) : std::nullopt;
    };
    const std::string whom =
        fmt::format("rank 0 at {}, port {}", launch_.address, fmt::join(launch_.ports, ", "));
    auto listener = listen_at(0);
    if (!listener) throw Error(describe() + ": no port of this host is free");
    Greeting greets = greeting(false);
    greets.members = here;
    Admission admission = seek(to_next_port, greets, whom);
    --next;  // the port that answered
    greets = greeting(true);
    greets.members = here;
    greets.port = listener->port();
    Admission data = seek(to_next_port, greets, whom);
    os::Message message;
    const Welcome welcome =
        await_welcome(admission, message, "rank 0", options_.secret, [&] { check(locals); });
    meeting_.parent.emplace(Neighbour{0, std::move(admission.link)});
    meet_hosts(welcome, *listener);
    meeting_.data[0] = data.link.take_stream();
    all_hosts_met(welcome);
    return welcome;
  }

  /// Tries until it is admitted.
  Admission seek(const Connect& connect, const Greeting& greets, const std::string& whom) {
    std::string last_answer;
    auto tell_at = os::deadline_after(
        std::min<std::chrono::nanoseconds>(kTellAfter, options_.timeout / 2));  // once
    for (;;) {
      if (auto link = connect()) {
        try {
          if (introduce(*link, greets)) return {std::move(*link), greets.challenge};
          last_answer = "the connection ended";
        } catch (const SystemError&) {
          throw;
        } catch (const Error& refusal) {
          last_answer = refusal.what();
        }
      }
      const std::string why =
          whom + (last_answer.empty() ? " did not answer"
                                      : fmt::format(" did not take it in: {}", last_answer));
      if (os::Clock::now() >= tell_at) {
        tell_at = os::kNoDeadline;
        os::log(os::LogLevel::kWarning, "group", "{}: {}; it tries again", describe(), why);
      }
      pause(why);
    }
  }

  /// Whether it was admitted; false where the connection ended. Throws Error with the reason of a
  /// refusal.
  bool introduce(Link& link, const Greeting& greets) {
    os::Message message;
    const auto hear = [&] {
      const auto outcome = await(link, message, os::deadline_after(kAnswer));
      if (outcome == os::RecvOutcome::kTimedOut) throw Error("no answer after the connection");
      return outcome == os::RecvOutcome::kMessage;
    };
    Challenge theirs{};
    if (link.is_remote()) {
      if (!hear()) return false;
      theirs = unpack_challenge(message.bytes);
    }
    const std::string secret = link.is_remote() ? options_.secret : "";
    if (!link.send(pack(greets, theirs, secret), os::deadline_after(kAnswer)) || !hear())
      return false;
    if (kind_of(message.bytes) == MessageKind::kRefused) throw Error(unpack_refusal(message.bytes));
    return kind_of(message.bytes) == MessageKind::kAdmitted;
  }

  Welcome await_welcome(Admission& admission, os::Message& message, const std::string& whom,
                        const std::string& secret, const std::function<void()>& meanwhile) {
    for (;;) {
      const auto slice = std::min(answer_deadline_, os::deadline_after(kLook));
      const auto outcome = await(admission.link, message, slice);
      if (outcome == os::RecvOutcome::kMessage) {
        Welcome welcome = unpack_welcome(
            message.bytes, admission.link.is_remote() ? admission.mine : Challenge{}, secret);
        if (!has_all(welcome))
          throw Error(fmt::format("{}: {} welcomed to a group of other ranks", describe(), whom));
        return welcome;
      }
      if (outcome == os::RecvOutcome::kClosed)
        throw Error(
            fmt::format("{}: {} ended, or gave up, before all ranks had come", describe(), whom));
      meanwhile();
      if (os::Clock::now() >= answer_deadline_)
        throw TimedOut(
            fmt::format("{}: some ranks did not come within {} s", describe(), seconds()));
    }
  }

  // --- Time

  /// Throws TimedOut with `why` at the deadline; before, it waits longer each time.
  void pause(const std::string& why) {
    look();
    if (os::Clock::now() >= deadline_)
      throw TimedOut(fmt::format("{}: {} within {} s", describe(), why, seconds()));
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, kLongestPause);
  }

  void look() const {
    if (options_.look) options_.look();
  }

  /// As Link::recv().
  os::RecvOutcome await(Link& link, os::Message& message, os::Deadline until) const {
    for (;;) {
      look();
      const auto outcome = link.recv(message, std::min(until, os::deadline_after(kLook)));
      if (outcome != os::RecvOutcome::kTimedOut || os::Clock::now() >= until) return outcome;
    }
  }

  /// As Stream::recv().
  os::StreamOutcome await(os::Stream& stream, std::byte& byte, os::Deadline until) const {
    for (;;) {
      look();
      const auto outcome =
          stream.recv(std::span(&byte, 1), std::min(until, os::deadline_after(kLook)));
      if (outcome != os::StreamOutcome::kTimedOut || os::Clock::now() >= until) return outcome;
    }
  }

  void tell_missing(const std::function<std::string()>& missing) {
    look();
    if (told_ || os::Clock::now() < started_ + kTellAfter) return;
    told_ = true;
    os::log(os::LogLevel::kWarning, "group", "{}: still waiting for {}", describe(), missing());
  }

  double seconds() const { return std::chrono::duration<double>(options_.timeout).count(); }

  const Launch& launch_;
  const JoinOptions& options_;
  const std::size_t arena_bytes_;
  const os::Deadline deadline_;
  const os::Deadline answer_deadline_;  // for what a peer with the same deadline says of it
  const bool on_loopback_;              // asked once: it looks a name up
  const os::Deadline started_ = os::Clock::now();
  const Member me_;
  std::chrono::milliseconds pause_ = kShortestPause;
  bool told_ = false;
  Meeting meeting_;
};

}  // namespace

JoinOptions JoinOptions::from_environment() {
  JoinOptions options;
  options.secret = secret_of_environment();
  if (const char* star = std::getenv("SHOAL_GROUP_STAR"))
    options.star = std::string_view(star) == "1";
  return options;
}

Meeting meet(const Launch& launch, const JoinOptions& options, std::size_t arena_bytes) {
  validate(launch);
  if (!launch.one_host() && !rank_0_is_on_loopback(launch))
    require_secret(launch.address, options.secret,
                   fmt::format("join a group of {} ranks on several hosts", launch.size),
                   "for all ranks");
  return Rendezvous(launch, options, arena_bytes).run();
}

}  // namespace shoal::group
