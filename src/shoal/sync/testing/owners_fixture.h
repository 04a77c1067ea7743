// For tests: a word or more in a segment of their own, owners, and children killed on the way.
#pragma once

#include <unistd.h>

#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/owner.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/sync/testing/mortal_atomics.h"

namespace shoal::sync::testing {

inline constexpr Owner kMe = 1;
inline constexpr Owner kOther = 2;

inline constexpr auto all_live = [](Owner) { return true; };
inline constexpr auto other_is_dead = [](Owner owner) { return owner != kOther; };

/// Spins never.
inline SpinPolicy no_spin() {
  return SpinPolicy({.cap = std::chrono::nanoseconds::zero()}, CpuLoad(1, ""), 1);
}
/// Spins up to 20 µs.
inline SpinPolicy short_spin() {
  return SpinPolicy({.cap = std::chrono::microseconds(20)}, CpuLoad(1, ""), 2);
}

/// A T, and whatever follows it in its bytes, in a segment that children share.
template <class T>
class Shared {
 public:
  T* operator->() const { return arena_.at<T>(0); }
  T& operator*() const { return *arena_.at<T>(0); }
  /// An int of the test's own beside it.
  int& number(std::size_t index = 0) const { return arena_.at<int>(kNumbers)[index]; }
  void raise_flag(std::size_t index = 0) const { flag(index).store(1); }
  void await_flag(std::size_t index = 0) const {
    while (flag(index).load() == 0) ::usleep(50);
  }

 private:
  static constexpr std::size_t kNumbers = 8192;
  std::atomic<int>& flag(std::size_t index) const {
    return arena_.at<std::atomic<int>>(2 * kNumbers)[index];
  }

  shm::Arena arena_ = shm::Arena::create("a test's words", 3 * kNumbers);
};

/// What several do at the same time; each returns 0 when all is well.
using Bodies = std::vector<std::function<int()>>;

/// Runs each in a process of its own. Whether all returned 0.
inline bool in_processes(const Bodies& bodies) {
  std::vector<std::unique_ptr<os::testing::Child>> children;
  for (const auto& body : bodies) {
    children.push_back(std::make_unique<os::testing::Child>(body));
  }
  bool well = true;
  for (const auto& child : children) well = child->join() == os::ProcessEnd{} && well;
  return well;
}

/// Runs each in a thread of this process: ThreadSanitizer sees what they do to the same words.
inline bool in_threads(const Bodies& bodies) {
  std::vector<std::future<int>> threads;
  for (const auto& body : bodies) threads.push_back(std::async(std::launch::async, body));
  bool well = true;
  for (auto& thread : threads) well = thread.get() == 0 && well;
  return well;
}

/// Runs `body` in children of which the n-th is killed before its n-th operation on words, and
/// `check(n)` after each, until one lives to its end. Returns how many were killed.
inline int kill_at_every_operation(const std::function<void()>& prepare,
                                   const std::function<void()>& body,
                                   const std::function<void(int)>& check) {
  for (int operations = 0;; ++operations) {
    prepare();
    os::testing::Child child([&] {
      operations_to_live() = operations;
      body();
      return 0;
    });
    const auto end = child.join();
    if (!end || end->signal != SIGKILL) return operations;
    check(operations);
  }
}

}  // namespace shoal::sync::testing
