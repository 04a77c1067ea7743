// For tests: the machine's atomics, with the wake-ups counted.
#pragma once

#include "shoal/sync/atomics.h"

namespace shoal::sync::testing {

/// Threads: one at a time, in one process.
struct CountingAtomics : SystemAtomics {
  static inline int wakes = 0;

  static void wake_all(Word& word) noexcept {
    ++wakes;
    SystemAtomics::wake_all(word);
  }
  static void wake_one(Word& word) noexcept {
    ++wakes;
    SystemAtomics::wake_one(word);
  }
};

}  // namespace shoal::sync::testing
