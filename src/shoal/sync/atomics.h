// What the synchronisation classes are made of: a 32-bit atomic word and sleeping on it.
//
// Each of those classes is a template over such a policy, so that the very same code runs on the
// machine and under the Relacy model checker (sync/model_test.cc).
#pragma once

#include <atomic>
#include <cstdint>

#include "shoal/os/clock.h"
#include "shoal/os/futex.h"

namespace shoal::sync {

/// The machine's atomics and futexes.
struct SystemAtomics {
  using Word = os::FutexWord;
  using Word64 = std::atomic<std::uint64_t>;  // nobody sleeps on these
  static_assert(Word64::is_always_lock_free);

  [[nodiscard]] static os::FutexOutcome wait(const Word& word, std::uint32_t expected,
                                             os::Deadline deadline) noexcept {
    return os::futex_wait(word, expected, deadline);
  }
  static void wake_all(Word& word) noexcept { os::futex_wake_all(word); }
  static void wake_one(Word& word) noexcept { os::futex_wake(word, 1); }
};

/// Tells the processor that this is a spin loop.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // stalls for tens of cycles; yield does nothing on most cores
#else
  asm volatile("" ::: "memory");
#endif
}

}  // namespace shoal::sync
