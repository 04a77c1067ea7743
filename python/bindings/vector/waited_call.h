// A reset or step of all environments, between its beginning and the caller's having its result.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::python {

/// What is known of it here, whatever exception a wait was left by: a signal's handler may raise
/// anything, also as the wait returns.
///
/// Threads: one at a time, with the GIL.
/// Processes, death: the caller's own, and ends with it.
class WaitedCall {
 public:
  /// `is_local`: the environments are stepped in this process, so an exception ends the call.
  explicit WaitedCall(bool is_local) noexcept : is_local_(is_local) {}

  /// Whether it has begun and not ended.
  bool is_under_way() const noexcept { return state_ == State::kUnderWay; }
  /// Whether it has ended, and another wait is to return its result again, for a caller whom a
  /// signal kept from the first.
  bool is_kept() const noexcept { return state_ == State::kKept; }
  /// Either of them.
  bool exists() const noexcept { return state_ != State::kNone; }

  /// Calls `begin` without the GIL.
  template <class Begin>
  void begin(Begin&& begin) {
    state_ = State::kNone;
    const nanobind::gil_scoped_release unlocked;
    std::forward<Begin>(begin)();
    state_ = State::kUnderWay;
  }

  /// Calls `wait` without the GIL, for the end of the call.
  template <class Wait>
  void end(Wait&& wait) {
    try {
      const nanobind::gil_scoped_release unlocked;
      std::forward<Wait>(wait)();
    } catch (const TimedOut&) {
      throw;
    } catch (const nanobind::python_error&) {  // of a signal's handler; or an environment's own
      if (is_local_) state_ = State::kNone;
      throw;
    } catch (...) {
      state_ = State::kNone;
      throw;
    }
    state_ = State::kNone;
  }

  /// Its result is whole now.
  void keep() noexcept { state_ = State::kKept; }

 private:
  enum class State : std::uint8_t { kNone, kUnderWay, kKept };

  bool is_local_;
  State state_ = State::kNone;
};

}  // namespace shoal::python
