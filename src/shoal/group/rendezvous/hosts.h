// The hosts of a group find each other, each by its first rank: all come to rank 0's, and then each to
// those of lower hosts.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "shoal/group/launch.h"
#include "shoal/group/member.h"
#include "shoal/group/messages.h"
#include "shoal/group/rendezvous/approach.h"
#include "shoal/group/rendezvous/patience.h"
#include "shoal/group/rendezvous/reception.h"
#include "shoal/group/rendezvous/rendezvous.h"
#include "shoal/os/socket/stream.h"

namespace shoal::group {

class Hosts {
 public:
  struct Here {
    std::vector<Member> members;      // of this host, by local rank
    std::function<void()> check;      // throws when one of them has ended
    bool rank_0_on_loopback = false;  // as rank_0_is_on_loopback() says
  };

  /// Borrows all but `here`.
  Hosts(const Launch& launch, const JoinOptions& options, Patience& patience, Approach& approach,
        Here here);

  /// Waits until all are there, and puts the connections into `meeting`: parent, children, data, and
  /// whether all hosts have met. Throws as meet().
  Welcome meet(Meeting& meeting) {
    return launch_.rank == 0 ? receive_hosts(meeting) : find_root(meeting);
  }

 private:
  Welcome receive_hosts(Meeting& meeting);
  Welcome welcome_hosts(std::vector<Guest>& guests, Meeting& meeting);
  Welcome find_root(Meeting& meeting);
  void meet_hosts(const Welcome& welcome, os::StreamListener& listener, Meeting& meeting);
  void receive_above(const Welcome& welcome, std::size_t mine, os::StreamListener& listener,
                     os::Deadline until, Meeting& meeting);
  void all_hosts_met(const Welcome& welcome, Meeting& meeting);

  /// Where others come to; nobody where the port (0: any) is taken.
  std::optional<os::StreamListener> listen_at(int port) const;
  os::StreamListener listen() const;
  Reception open(os::StreamListener& listener, Reception::Objection objection) const;

  const Launch& launch_;
  const JoinOptions& options_;
  Patience& patience_;
  Approach& approach_;
  const Here here_;
  const bool on_loopback_;  // no rank can come from another machine
};

/// Looks the name of rank 0's host up. Throws Error for one that nobody knows.
bool rank_0_is_on_loopback(const Launch& launch, const Patience& patience);

}  // namespace shoal::group
