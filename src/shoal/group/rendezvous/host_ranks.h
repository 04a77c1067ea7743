// The ranks of one host find each other: at a Unix socket whose name is made of the attempt.
//
// Threads: one at a time.
#pragma once

#include <vector>

#include "shoal/group/launch.h"
#include "shoal/group/link.h"
#include "shoal/group/member.h"
#include "shoal/group/messages.h"
#include "shoal/group/rendezvous/approach.h"
#include "shoal/group/rendezvous/patience.h"
#include "shoal/group/rendezvous/reception.h"
#include "shoal/group/rendezvous/rendezvous.h"
#include "shoal/shm/arena.h"

namespace shoal::group {

class HostRanks {
 public:
  /// Of a host's first rank, which waits for all others. Borrows `patience`. Throws TimedOut naming
  /// who is missing.
  HostRanks(const Launch& launch, Patience& patience);

  /// As they said, by local rank.
  std::vector<Member> members() const;
  /// Throws Error when one of them has ended.
  void check();
  /// Tells them who is there, with the memory of their host, and gives their connections.
  std::vector<Neighbour> welcome(const Welcome& welcome, const shm::Arena& arena);

 private:
  const Patience& patience_;
  std::vector<Guest> guests_;
};

/// Any other rank of a host: comes to the first one, and waits until all are there.
Meeting follow_first_rank(const Launch& launch, const Member& me, Approach& approach);

}  // namespace shoal::group
