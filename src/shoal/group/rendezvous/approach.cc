#include "shoal/group/rendezvous/approach.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "shoal/group/rendezvous/roster.h"
#include "shoal/os/error.h"
#include "shoal/os/log.h"

namespace shoal::group {

Greeting Approach::greeting(bool for_data) const {
  return {.attempt = launch_.attempt,
          .rank = launch_.rank,
          .size = launch_.size,
          .local_rank = launch_.local_rank,
          .for_data = for_data,
          .members = {},
          .challenge = make_challenge()};
}

std::string Approach::secret_for(const Link& link) const {
  return link.is_remote() ? options_.secret : "";
}

Admitted Approach::seek(const Connect& connect, const Greeting& greets, const std::string& whom) {
  std::string last_answer;
  auto tell_at = os::deadline_after(
      std::min<std::chrono::nanoseconds>(Patience::kTellAfter, options_.timeout / 2));  // once
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
      os::log(os::LogLevel::kWarning, "group", "{}: {}; it tries again", patience_.describe(), why);
    }
    patience_.pause(why);
  }
}

Admitted Approach::visit(const Place& place, const Greeting& greets, os::Deadline until) {
  for (;;) {
    patience_.look();
    if (auto stream = os::Stream::connect(place.address, place.port, until, options_.look)) {
      Link link(std::move(*stream));
      if (introduce(link, greets)) return {std::move(link), greets.challenge};
    }
    if (os::Clock::now() >= until)
      throw Error(fmt::format("there is no way to {}, port {}", place.address, place.port));
    std::this_thread::sleep_for(Patience::kShortestPause);
  }
}

bool Approach::introduce(Link& link, const Greeting& greets) {
  os::Message message;
  const auto hear = [&] {
    const auto outcome = patience_.await(link, message, os::deadline_after(Patience::kAnswer));
    if (outcome == os::RecvOutcome::kTimedOut) throw Error("no answer after the connection");
    return outcome == os::RecvOutcome::kMessage;
  };
  Challenge theirs{};
  if (link.is_remote()) {
    if (!hear()) return false;
    theirs = unpack_challenge(message.bytes);
  }
  if (!link.send(pack(greets, theirs, secret_for(link)), os::deadline_after(Patience::kAnswer)) ||
      !hear())
    return false;
  if (kind_of(message.bytes) == MessageKind::kRefused) throw Error(unpack_refusal(message.bytes));
  return kind_of(message.bytes) == MessageKind::kAdmitted;
}

Welcome Approach::await_welcome(Admitted& admitted, os::Message& message, const std::string& whom,
                                const std::function<void()>& meanwhile) {
  for (;;) {
    const auto slice = std::min(patience_.answer_deadline(), os::deadline_after(Patience::kLook));
    const auto outcome = patience_.await(admitted.link, message, slice);
    if (outcome == os::RecvOutcome::kMessage) {
      Welcome welcome =
          unpack_welcome(message.bytes, admitted.link.is_remote() ? admitted.mine : Challenge{},
                         secret_for(admitted.link));
      if (!has_all(welcome, launch_.size))
        throw Error(
            fmt::format("{}: {} welcomed to a group of other ranks", patience_.describe(), whom));
      return welcome;
    }
    if (outcome == os::RecvOutcome::kClosed)
      throw Error(fmt::format("{}: {} ended, or gave up, before all ranks had come",
                              patience_.describe(), whom));
    meanwhile();
    if (os::Clock::now() >= patience_.answer_deadline())
      throw TimedOut(fmt::format("{}: some ranks did not come within {} s", patience_.describe(),
                                 patience_.seconds()));
  }
}

}  // namespace shoal::group
