// For tests: the machine's atomics, in a process that is killed before a chosen operation on them.
#pragma once

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>

#include "shoal/sync/atomics.h"

namespace shoal::sync::testing {

/// How many operations on words this process still does before it is killed; negative: all.
inline int& operations_to_live() noexcept {
  static int operations = -1;
  return operations;
}

inline void step() noexcept {
  if (operations_to_live() >= 0 && operations_to_live()-- == 0) ::kill(::getpid(), SIGKILL);
}

/// Threads: as std::atomic, while nobody is to be killed. Same bytes as std::atomic.
template <class T>
class MortalWord {
 public:
  T load(std::memory_order order) const noexcept {
    step();
    return value_.load(order);
  }
  void store(T value, std::memory_order order) noexcept {
    step();
    value_.store(value, order);
  }
  T exchange(T value, std::memory_order order) noexcept {
    step();
    return value_.exchange(value, order);
  }
  T fetch_add(T value, std::memory_order order) noexcept {
    step();
    return value_.fetch_add(value, order);
  }
  T fetch_or(T bits, std::memory_order order) noexcept {
    step();
    return value_.fetch_or(bits, order);
  }
  T fetch_and(T bits, std::memory_order order) noexcept {
    step();
    return value_.fetch_and(bits, order);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             std::memory_order failure) noexcept {
    step();
    return value_.compare_exchange_weak(expected, desired, success, failure);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order success,
                               std::memory_order failure) noexcept {
    step();
    return value_.compare_exchange_strong(expected, desired, success, failure);
  }
  std::atomic<T>& value() noexcept { return value_; }
  const std::atomic<T>& value() const noexcept { return value_; }

 private:
  std::atomic<T> value_;
};

struct MortalAtomics {
  using Word = MortalWord<std::uint32_t>;
  using Word64 = MortalWord<std::uint64_t>;

  [[nodiscard]] static os::FutexOutcome wait(const Word& word, std::uint32_t expected,
                                             os::Deadline deadline) noexcept {
    step();
    return os::futex_wait(word.value(), expected, deadline);
  }
  static void wake_all(Word& word) noexcept {
    step();
    os::futex_wake_all(word.value());
  }
  static void wake_one(Word& word) noexcept {
    step();
    os::futex_wake(word.value(), 1);
  }
};

}  // namespace shoal::sync::testing
