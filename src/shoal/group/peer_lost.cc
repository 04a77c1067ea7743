#include "shoal/group/peer_lost.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::group {

PeerLost::PeerLost(Member member, const std::string& cause, double silent_seconds)
    : Error(fmt::format("rank {} (process {} on {}) is lost: {}; it was heard last {:.1f} s ago",
                        member.rank, member.pid, member.host, cause, silent_seconds)),
      member_(std::move(member)),
      silent_seconds_(silent_seconds) {}

}  // namespace shoal::group
