// Waits of C++ as Python sees them: a timeout in seconds, the GIL given back, Ctrl-C seen.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/process/launcher.h"

namespace shoal::python {

/// Seconds as the engine takes them: 0 at least, and no more than its clocks hold.
inline std::chrono::nanoseconds nanoseconds(double seconds) {
  constexpr double kLongest = 1e9;
  return std::chrono::nanoseconds(
      static_cast<std::int64_t>(std::clamp(seconds, 0.0, kLongest) * 1e9));
}
inline std::optional<std::chrono::nanoseconds> nanoseconds(std::optional<double> seconds) {
  if (!seconds) return {};
  return nanoseconds(*seconds);
}
inline std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(nanoseconds(seconds));
}

/// In `seconds` from now; a negative one is now, none is never. Throws InvalidArgument for nan.
inline os::Deadline deadline(std::optional<double> seconds) {
  if (!seconds) return os::kNoDeadline;
  if (std::isnan(*seconds)) throw InvalidArgument("a timeout is a number of seconds, not nan");
  return os::deadline_after(nanoseconds(*seconds));
}

/// Lets Ctrl-C end a wait of the main thread, with the GIL or without: throws what a signal handler
/// raised. Other threads are not told of signals, and must not ask for the GIL here: a learner may
/// still wait while the interpreter ends.
inline void check_signals() {
  if (::gettid() != ::getpid()) return;
  const nanobind::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

/// The same in a long call, at most every 50 ms.
class SignalCheck {
 public:
  void operator()() {
    const os::Clock::time_point now = os::Clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(50);
    check_signals();
  }

 private:
  os::Clock::time_point next_{};
};

/// Waits without the GIL, in turns, so that Ctrl-C is seen also where another thread got the
/// signal: `wait(until)` returns whether it is done. `interrupted()` runs before the exception of a
/// signal handler goes on.
template <class Wait, class Interrupted>
bool interruptible(std::optional<double> timeout, std::chrono::milliseconds turn, Wait wait,
                   Interrupted interrupted) {
  const os::Deadline end = deadline(timeout);
  for (;;) {
    bool done;
    {
      const nanobind::gil_scoped_release unlocked;
      done = wait(std::min(end, os::deadline_after(turn)));
    }
    if (done) return true;
    try {
      check_signals();
    } catch (...) {
      interrupted();
      throw;
    }
    if (os::Clock::now() >= end) return false;
  }
}

template <class Wait>
bool interruptible(std::optional<double> timeout, Wait wait) {
  return interruptible(timeout, std::chrono::milliseconds(50), std::move(wait), [] {});
}

/// Until the launcher can start workers at once: a preload may take as long as it takes, and Ctrl-C
/// is seen meanwhile.
inline void await_ready(process::Launcher& launcher) {
  interruptible(std::nullopt, [&](os::Deadline until) { return launcher.ready_by(until); });
}

}  // namespace shoal::python
