// How the ranks of a group find each other.
//
// The ranks of a host connect to its first rank, by a Unix socket whose name is made of the
// attempt; the first ranks of the other hosts connect to rank 0 by TCP, twice: once for messages
// and once for data. When all are there, a welcome goes down the same tree. Then the first ranks
// connect to each other, for data, each to those of lower hosts. Where some cannot, rank 0 hears of
// it, and all do without.
//
// Threads: one at a time.
// Death: of one that waits: it makes room for another with its rank. Of one that others wait for:
// they end with an error, at the deadline at the latest.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shoal/group/launch.h"
#include "shoal/group/link.h"
#include "shoal/group/member.h"
#include "shoal/os/socket/stream.h"
#include "shoal/shm/arena.h"

namespace shoal::group {

struct JoinOptions {
  /// Until all are there, with the time in which the name of rank 0's host is looked up.
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);
  std::string secret = {};  // of all ranks, between hosts: what others must not know
  /// Called twice a second at least, but for the time in which the name of rank 0's host is looked
  /// up; what it throws ends the wait.
  std::function<void()> look = {};
  bool star =
      false;  // other hosts than rank 0's do not connect to each other, as if they could not

  /// With the secret of SHOAL_GROUP_SECRET; a star where SHOAL_GROUP_STAR is 1.
  static JoinOptions from_environment();
};

/// What a rank has when all are there.
struct Meeting {
  std::vector<Member> members;          // by rank
  std::vector<std::vector<int>> hosts;  // the ranks of each, by local rank; rank 0's first
  std::optional<Neighbour> parent;      // none for rank 0
  std::vector<Neighbour> children;
  shm::Arena arena;  // of this host's ranks; none where it has one
  /// Of the first rank of one of several hosts: to the others', by host. Where they cannot all
  /// reach each other, between rank 0 and the others alone.
  std::vector<os::Stream> data;
  bool all_met = false;  // the hosts have, each with each
};

/// Args: arena_bytes: of the arena that the ranks of a host get. Throws InvalidArgument for a
/// launch that is none, or one between hosts without a secret; TimedOut naming who is missing, and
/// what those who answered said; Error where one that had come ended.
Meeting meet(const Launch& launch, const JoinOptions& options, std::size_t arena_bytes);

}  // namespace shoal::group
