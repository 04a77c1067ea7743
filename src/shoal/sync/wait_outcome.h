// How a wait ends.
#pragma once

#include <cstdint>

namespace shoal::sync {

enum class WaitOutcome : std::uint8_t {
  kReady,        // what was waited for has happened
  kTimedOut,     // the deadline passed first
  kInterrupted,  // woken for another reason (a signal handler, nudge()): look, then wait again
};

}  // namespace shoal::sync
