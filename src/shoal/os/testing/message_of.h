// For tests: what a call says when it throws.
#pragma once

#include <exception>
#include <string>

#include "shoal/os/error.h"

namespace shoal::os::testing {

/// The message of the Failure that `call` throws, or words that no message of ours has.
template <class Failure = Error>
[[nodiscard]] std::string message_of(auto&& call) {
  try {
    call();
  } catch (const std::exception& thrown) {
    const bool is_failure = dynamic_cast<const Failure*>(&thrown) != nullptr;
    return (is_failure ? "" : "something else was thrown: ") + std::string(thrown.what());
  }
  return "nothing was thrown";
}

}  // namespace shoal::os::testing
