// Waits of C++ as Python sees them: a timeout in seconds, the GIL given back, Ctrl-C seen.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>

#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/process/launcher.h"

namespace shoal::python {

/// In `seconds` from now; a negative one is now, none is never. Throws InvalidArgument for nan.
inline os::Deadline deadline(std::optional<double> seconds) {
  if (!seconds) return os::kNoDeadline;
  if (std::isnan(*seconds)) throw InvalidArgument("a timeout is a number of seconds, not nan");
  constexpr double kLongest = 1e9;  // seconds; more overflows no clock
  return os::deadline_after(std::chrono::nanoseconds(
      static_cast<std::int64_t>(std::clamp(*seconds, 0.0, kLongest) * 1e9)));
}

/// Waits in short turns, so that Ctrl-C is seen: `wait(until)` returns whether it is done.
template <class Wait>
bool interruptible(std::optional<double> timeout, Wait wait) {
  constexpr std::chrono::milliseconds kTurn{50};
  const os::Deadline end = deadline(timeout);
  for (;;) {
    bool done;
    {
      const nanobind::gil_scoped_release unlocked;
      done = wait(std::min(end, os::deadline_after(kTurn)));
    }
    if (done) return true;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    if (os::Clock::now() >= end) return false;
  }
}

/// Until the launcher can start workers at once: a preload may take as long as it takes, and Ctrl-C
/// is seen meanwhile.
inline void await_ready(process::Launcher& launcher) {
  interruptible(std::nullopt, [&](os::Deadline until) { return launcher.ready_by(until); });
}

}  // namespace shoal::python
