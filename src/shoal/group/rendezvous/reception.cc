#include "shoal/group/rendezvous/reception.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>

#include "shoal/os/error.h"
#include "shoal/os/log.h"

namespace shoal::group {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kSlice{500};
constexpr std::chrono::seconds kPatience{5};  // with a guest that does not take what it is sent
constexpr std::chrono::seconds kSilence{30};  // of a guest that has not said who it is
constexpr std::size_t kMostSilent = 256;
constexpr std::size_t kMostTold = 16;  // reasons

}  // namespace

bool Reception::admit_until(const std::function<bool()>& complete, os::Deadline deadline,
                            const std::function<void()>& meanwhile) {
  while (!complete()) {
    meanwhile();
    if (os::Clock::now() >= deadline) return false;
    std::vector<pollfd> entries{{listener_, POLLIN, 0}};
    for (const Guest& guest : guests_) entries.push_back({guest.link.fd(), POLLIN, 0});
    const auto left = std::min<std::chrono::nanoseconds>(kSlice, os::time_left(deadline));
    const int ready =
        ::poll(entries.data(), entries.size(),
               static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
    if (ready < 0 && errno != EINTR) throw SystemError("wait for the ranks of a group");
    if (ready <= 0) continue;
    std::vector<Guest> staying;
    for (std::size_t i = 0; i < guests_.size(); ++i)
      if (entries[i + 1].revents == 0 || hear(guests_[i])) staying.push_back(std::move(guests_[i]));
    guests_ = std::move(staying);
    send_silent_ones_away(false);
    if (entries[0].revents != 0) let_in();
  }
  send_silent_ones_away(true);
  return true;
}

void Reception::send_silent_ones_away(bool all) {
  const auto now = os::Clock::now();
  auto silent = static_cast<std::size_t>(
      std::ranges::count_if(guests_, [](const Guest& guest) { return !guest.greeting; }));
  std::erase_if(guests_, [&](const Guest& guest) {
    if (guest.greeting) return false;
    const bool goes = all || now - guest.since > kSilence || silent > kMostSilent;
    silent -= goes ? 1 : 0;
    return goes;
  });
}

void Reception::let_in() {
  std::optional<Link> link;
  try {
    link = accept_();
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {  // another user's
    os::log(os::LogLevel::kWarning, "group", "a connection to the group was refused: {}",
            error.what());
  }
  if (!link) return;
  Guest guest{.link = std::move(*link), .challenge = {}, .greeting = {}, .since = os::Clock::now()};
  if (guest.link.is_remote()) {
    guest.link.set_longest(Link::kMaxOfStranger);
    guest.challenge = make_challenge();
    if (!guest.link.send(pack(guest.challenge), os::deadline_after(kPatience))) return;
  }
  guests_.push_back(std::move(guest));
}

bool Reception::hear(Guest& guest) {
  os::Message message;
  try {
    const auto outcome = guest.link.recv(message, os::Deadline::min());
    if (outcome == os::RecvOutcome::kTimedOut) return true;  // a part of a message
    if (outcome == os::RecvOutcome::kClosed || guest.greeting) return false;
    Greeting greeting = unpack_greeting(message.bytes, guest.challenge, secret_);
    std::string objection = objection_to(greeting);
    if (!objection.empty()) throw Error(objection);
    guest.greeting = std::move(greeting);
    guest.link.set_longest(Link::kMaxMessage);
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    tell_refusal(error.what());
    static_cast<void>(guest.link.send(pack_refusal(error.what()), os::deadline_after(kPatience)));
    return false;
  }
  return guest.link.send(pack(MessageKind::kAdmitted), os::deadline_after(kPatience));
}

/// Each reason is a warning once: who is refused comes again, many times a second.
void Reception::tell_refusal(const std::string& why) {
  const bool is_new = told_.size() < kMostTold && told_.insert(why).second;
  os::log(is_new ? os::LogLevel::kWarning : os::LogLevel::kInfo, "group", "a rank was refused: {}",
          why);
}

std::string Reception::objection_to(const Greeting& greeting) const {
  for (const Guest& guest : guests_) {
    if (!guest.greeting || guest.greeting->rank != greeting.rank ||
        guest.greeting->for_data != greeting.for_data)
      continue;
    return fmt::format("rank {} is there already", greeting.rank);
  }
  return objection_(greeting);
}

}  // namespace shoal::group
