// Lets those in that belong here: the side of the rendezvous that others come to.
//
// Threads: one at a time.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shoal/group/link.h"
#include "shoal/group/messages.h"
#include "shoal/os/clock.h"

namespace shoal::group {

/// Who came, and has not gone again.
struct Guest {
  Link link;
  Challenge challenge{};             // that it was given; zeros on one host
  std::optional<Greeting> greeting;  // once it was admitted
  os::Clock::time_point since{};     // when it came
};

class Reception {
 public:
  using Accept = std::function<std::optional<Link>()>;            // without waiting
  using Objection = std::function<std::string(const Greeting&)>;  // empty: it belongs here

  /// Args: listener: for poll(), readable when accept() has somebody.
  Reception(int listener, Accept accept, Objection objection, std::string secret)
      : listener_(listener),
        accept_(std::move(accept)),
        objection_(std::move(objection)),
        secret_(std::move(secret)) {}

  /// Admits and refuses those who come until `complete()`; false when `deadline` passed first. One
  /// who goes again makes room for another. Who says nothing has to go: after some seconds, and
  /// where many more come. `meanwhile()` is called at least each half second.
  bool admit_until(const std::function<bool()>& complete, os::Deadline deadline,
                   const std::function<void()>& meanwhile);

  /// In the order in which they came; after admit_until() those that were admitted.
  std::vector<Guest>& guests() noexcept { return guests_; }

 private:
  void let_in();
  void send_silent_ones_away(bool all);
  /// Whether it stays.
  bool hear(Guest& guest);
  std::string objection_to(const Greeting& greeting) const;
  void tell_refusal(const std::string& why);

  int listener_;
  Accept accept_;
  Objection objection_;
  std::string secret_;
  std::vector<Guest> guests_;
  std::set<std::string> told_;  // why somebody was refused
};

}  // namespace shoal::group
