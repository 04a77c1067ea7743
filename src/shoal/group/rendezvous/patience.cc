#include "shoal/group/rendezvous/patience.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/log.h"

namespace shoal::group {

Patience::Patience(const Launch& launch, const JoinOptions& options)
    : launch_(launch),
      options_(options),
      deadline_(os::deadline_after(options.timeout)),
      started_(os::Clock::now()),
      pause_(kShortestPause) {}

std::string Patience::describe() const {
  return fmt::format("join a group of {} as rank {} ({}, attempt '{}')", launch_.size, launch_.rank,
                     launch_.launcher.empty() ? "by arguments" : launch_.launcher, launch_.attempt);
}

os::Deadline Patience::answer_deadline() const noexcept {
  return deadline_ > os::kNoDeadline - kAnswer ? os::kNoDeadline : deadline_ + kAnswer;
}

void Patience::look() const {
  if (options_.look) options_.look();
}

void Patience::pause(const std::string& why) {
  look();
  if (os::Clock::now() >= deadline_)
    throw TimedOut(fmt::format("{}: {} within {} s", describe(), why, seconds()));
  std::this_thread::sleep_for(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
}

void Patience::tell_missing(const std::function<std::string()>& missing) {
  look();
  if (told_ || os::Clock::now() < started_ + kTellAfter) return;
  told_ = true;
  os::log(os::LogLevel::kWarning, "group", "{}: still waiting for {}", describe(), missing());
}

os::RecvOutcome Patience::await(Link& link, os::Message& message, os::Deadline until) const {
  for (;;) {
    look();
    const auto outcome = link.recv(message, std::min(until, os::deadline_after(kLook)));
    if (outcome != os::RecvOutcome::kTimedOut || os::Clock::now() >= until) return outcome;
  }
}

os::StreamOutcome Patience::await(os::Stream& stream, std::byte& byte, os::Deadline until) const {
  for (;;) {
    look();
    const auto outcome =
        stream.recv(std::span(&byte, 1), std::min(until, os::deadline_after(kLook)));
    if (outcome != os::StreamOutcome::kTimedOut || os::Clock::now() >= until) return outcome;
  }
}

}  // namespace shoal::group
