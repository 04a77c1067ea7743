// The error of a connection whose other end has gone without a farewell.
#pragma once

#include <string>

#include "shoal/group/member.h"
#include "shoal/os/error.h"

namespace shoal::group {

/// The process at the other end was killed, was stopped, or cannot be reached any more (Python:
/// shoal.ConnectionLost).
class ConnectionLost : public Error {
 public:
  /// `who` reads as in "the learner", `cause` as in "its connection has ended"; `silent_seconds`:
  /// since it was heard last.
  ConnectionLost(const std::string& who, Member member, const std::string& cause,
                 double silent_seconds);

  const Member& member() const noexcept { return member_; }

 private:
  Member member_;
};

}  // namespace shoal::group
