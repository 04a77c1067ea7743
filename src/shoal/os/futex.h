// Sleeping on a word of memory that several processes map.
//
// The shared kind of futex, always: a private one (as in libstdc++'s atomic::wait) is not seen by
// other processes.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>

#include "shoal/os/clock.h"

namespace shoal::os {

using FutexWord = std::atomic<std::uint32_t>;
static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free);

enum class FutexOutcome {
  kWoken,        // by a wake on this word, or for no reason: look at the word again
  kChanged,      // the word did not hold `expected`: nobody slept
  kTimedOut,     // the deadline passed
  kInterrupted,  // a signal handler ran
};

/// Sleeps while `word` holds `expected`, until `deadline` at the latest.
///
/// Memory ordering: none is promised; load the word with acquire afterwards.
/// Death: a sleeper that is killed leaves no trace in the word.
[[nodiscard]] FutexOutcome futex_wait(const FutexWord& word, std::uint32_t expected,
                                      Deadline deadline) noexcept;

/// Wakes at most `count` sleepers; returns how many.
int futex_wake(FutexWord& word, int count) noexcept;

/// Wakes all sleepers with one system call; returns how many.
inline int futex_wake_all(FutexWord& word) noexcept { return futex_wake(word, INT_MAX); }

}  // namespace shoal::os
