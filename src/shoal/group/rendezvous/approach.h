// The side of the rendezvous that comes to others: the ranks of a host to its first, the first ranks
// of hosts to rank 0 and to each other.
//
// Threads: one at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "shoal/group/launch.h"
#include "shoal/group/link.h"
#include "shoal/group/messages.h"
#include "shoal/group/rendezvous/patience.h"
#include "shoal/group/rendezvous/rendezvous.h"
#include "shoal/os/clock.h"

namespace shoal::group {

/// A connection on which the other side has admitted this rank.
struct Admitted {
  Link link;
  Challenge mine{};  // what the other side is to seal its welcome over
};

class Approach {
 public:
  using Connect = std::function<std::optional<Link>()>;  // none: nobody is there

  /// Borrows all.
  Approach(const Launch& launch, const JoinOptions& options, Patience& patience)
      : launch_(launch), options_(options), patience_(patience) {}

  /// What this rank says, but for its members and its port.
  Greeting greeting(bool for_data) const;

  /// Tries until it is admitted. Throws TimedOut at the deadline, with the last answer.
  Admitted seek(const Connect& connect, const Greeting& greets, const std::string& whom);
  /// Tries until then to be admitted at this place. Throws Error.
  Admitted visit(const Place& place, const Greeting& greets, os::Deadline until);

  /// What the other side says once all are there; `message` keeps what came with it. `meanwhile` is
  /// called between looks. Throws Error where the other side ends, or welcomes to another group;
  /// TimedOut.
  Welcome await_welcome(Admitted& admitted, os::Message& message, const std::string& whom,
                        const std::function<void()>& meanwhile);

 private:
  /// Whether it was admitted; false where the connection ended. Throws Error with the reason of a
  /// refusal.
  bool introduce(Link& link, const Greeting& greets);
  /// Between hosts alone there is one.
  std::string secret_for(const Link& link) const;

  const Launch& launch_;
  const JoinOptions& options_;
  Patience& patience_;
};

}  // namespace shoal::group
