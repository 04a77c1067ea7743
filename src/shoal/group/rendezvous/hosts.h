// The hosts of a group find each other, each by its first rank: all come to rank 0's, and then each to
// those of lower hosts.
//
// Threads: one at a time.
#pragma once

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
  /// Borrows all. `here`: the members of this host; `check` throws when one of them has ended.
  Hosts(const Launch& launch, const JoinOptions& options, Patience& patience, Approach& approach,
        std::vector<Member> here, std::function<void()> check);

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
  const std::vector<Member> here_;
  const std::function<void()> check_;
  const bool on_loopback_;  // asked once: it looks a name up
};

/// Whether rank 0 is on the loopback of its host. Throws Error for a name that nobody knows.
bool rank_0_is_on_loopback(const Launch& launch, const Patience& patience);

}  // namespace shoal::group
