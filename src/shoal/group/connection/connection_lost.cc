#include "shoal/group/connection/connection_lost.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::group {

ConnectionLost::ConnectionLost(const std::string& who, Member member, const std::string& cause,
                               double silent_seconds)
    : Error(fmt::format("{} (process {} on {}) is lost: {}; it was heard last {:.1f} s ago", who,
                        member.pid, member.host, cause, silent_seconds)),
      member_(std::move(member)) {}

}  // namespace shoal::group
