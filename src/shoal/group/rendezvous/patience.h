// How long a rank waits for the others, and what it says meanwhile.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "shoal/group/launch.h"
#include "shoal/group/link.h"
#include "shoal/group/rendezvous/rendezvous.h"
#include "shoal/os/clock.h"
#include "shoal/os/socket/stream.h"

namespace shoal::group {

class Patience {
 public:
  /// For what a peer says at once; and until the log hears what a rank waits for.
  static constexpr std::chrono::seconds kAnswer{5}, kTellAfter{10};
  /// Between two looks.
  static constexpr std::chrono::milliseconds kLook{400};
  static constexpr std::chrono::milliseconds kShortestPause{2}, kLongestPause{100};

  /// Borrows both.
  Patience(const Launch& launch, const JoinOptions& options);

  /// "join a group of 4 as rank 1 (…)": how an error begins.
  std::string describe() const;
  double seconds() const { return std::chrono::duration<double>(options_.timeout).count(); }

  os::Deadline deadline() const noexcept { return deadline_; }
  /// For what a peer with the same deadline says of it.
  os::Deadline answer_deadline() const noexcept;

  /// Throws what the caller's look throws.
  void look() const;
  /// Throws TimedOut with `why` at the deadline; before, it waits longer each time.
  void pause(const std::string& why);
  /// A look; once, after kTellAfter, the log hears who is missing.
  void tell_missing(const std::function<std::string()>& missing);

  /// As Link::recv(), with looks.
  os::RecvOutcome await(Link& link, os::Message& message, os::Deadline until) const;
  /// As Stream::recv(), with looks.
  os::StreamOutcome await(os::Stream& stream, std::byte& byte, os::Deadline until) const;

 private:
  const Launch& launch_;
  const JoinOptions& options_;
  const os::Deadline deadline_;
  const os::Deadline started_;
  std::chrono::milliseconds pause_;
  bool told_ = false;
};

}  // namespace shoal::group
