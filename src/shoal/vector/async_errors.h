// What send() and recv() refuse. Each says which environments, and what to do.
#pragma once

#include "shoal/os/error.h"

namespace shoal::vector {

/// An environment was sent that is in flight already, or more than max_in_flight would be (Python:
/// gymnasium.error.AlreadyPendingCallError).
class AlreadyInFlight : public InvalidState {
 public:
  using InvalidState::InvalidState;
};

/// More results were asked for than can come (Python: gymnasium.error.NoAsyncCallError).
class NothingInFlight : public InvalidState {
 public:
  using InvalidState::InvalidState;
};

/// An environment was sent before its first reset (Python: gymnasium.error.ResetNeeded).
class NotReset : public InvalidState {
 public:
  using InvalidState::InvalidState;
};

}  // namespace shoal::vector
