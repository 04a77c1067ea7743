// What a vector environment does when an episode has ended: the one place that decides it, for
// native and Python environments alike.
//
//   for each environment i:
//     if (autoreset.due(i))                             next-step mode
//       reset it; write its obs, reward 0, flags 0, reset 1; autoreset.was_reset(i)
//     else
//       step it; write its row
//       if (autoreset.ended(i, terminated, truncated))  same-step mode
//         copy obs to final_obs, has_final 1; reset it; write its obs, reset 1
//
// Threads: one object belongs to one stepper; its threads may use it for different environments at
// the same time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace shoal::vector {

/// What happens in the step after an episode's last one (gymnasium.vector.AutoresetMode).
enum class AutoresetMode : std::uint8_t {
  kNextStep,  // that step ignores its action, resets, and returns reward 0
  kSameStep,  // the last step itself resets; its own observation is in final_obs
  kDisabled,  // nothing is reset
};

/// "next_step", "same_step", "disabled". Throws InvalidArgument naming the three for anything else.
AutoresetMode autoreset_mode_from_name(std::string_view name);
std::string_view name(AutoresetMode mode) noexcept;

/// Which of a stepper's environments the next step resets instead of stepping.
/// Processes, death: the stepper's own, and ends with it.
class Autoreset {
 public:
  Autoreset() = default;
  Autoreset(AutoresetMode mode, int count)
      : mode_(mode), due_(static_cast<std::size_t>(count), 0) {}

  /// True: this step resets environment `i` and ignores its action.
  bool due(int i) const noexcept { return due_[static_cast<std::size_t>(i)] != 0; }

  /// The first environment in [lo, hi) that is due; hi when none is.
  int next_due(int lo, int hi) const noexcept {
    if (lo >= hi) return hi;
    const void* const found =
        std::memchr(&due_[static_cast<std::size_t>(lo)], 1, static_cast<std::size_t>(hi - lo));
    return found == nullptr
               ? hi
               : static_cast<int>(static_cast<const std::uint8_t*>(found) - due_.data());
  }

  /// Environment `i` was reset, by this step or by the caller: a pending autoreset is done with.
  void was_reset(int i) noexcept { due_[static_cast<std::size_t>(i)] = 0; }

  /// All environments are new, and between two episodes.
  void set_all_due() noexcept { std::fill(due_.begin(), due_.end(), std::uint8_t{1}); }

  /// Goes on from the state of a snapshot.
  void set_due(int i, bool due) noexcept { due_[static_cast<std::size_t>(i)] = due; }

  /// Environment `i` was stepped. True: its episode is over and it is to be reset within this step.
  bool ended(int i, bool terminated, bool truncated) noexcept {
    const bool over = terminated || truncated;
    due_[static_cast<std::size_t>(i)] = over && (mode_ == AutoresetMode::kNextStep || hold_);
    return over && mode_ == AutoresetMode::kSameStep && !hold_;
  }

  /// While set, same-step mode leaves the reset to the environment's next step.
  void hold(bool hold) noexcept { hold_ = hold && mode_ == AutoresetMode::kSameStep; }

  AutoresetMode mode() const noexcept { return mode_; }

 private:
  AutoresetMode mode_ = AutoresetMode::kNextStep;
  bool hold_ = false;
  std::vector<std::uint8_t> due_;
};

}  // namespace shoal::vector
