// The error of a group that has lost a rank.
#pragma once

#include <string>

#include "shoal/group/member.h"
#include "shoal/os/error.h"

namespace shoal::group {

/// A rank of the group was killed, does not answer, failed, or has left it (Python:
/// shoal.PeerLost). The group is of no use any more.
class PeerLost : public Error {
 public:
  /// `cause` reads as in "its connection has ended"; `silent_seconds`: since it was heard last.
  PeerLost(Member member, const std::string& cause, double silent_seconds);

  const Member& member() const noexcept { return member_; }
  double silent_seconds() const noexcept { return silent_seconds_; }

 private:
  Member member_;
  double silent_seconds_;
};

}  // namespace shoal::group
