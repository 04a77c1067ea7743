#include "shoal/sync/robust_lock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"

namespace shoal::sync {
namespace {

using namespace std::chrono_literals;
using os::testing::Child;
using os::testing::test_deadline;

/// A lock and what it protects, in a segment of their own.
struct Shared {
  Shared() { lock().init(); }
  RobustLock& lock() const { return *arena.at<RobustLock>(0); }
  int& value() const { return *arena.at<int>(sizeof(RobustLock)); }

  shm::Arena arena = shm::Arena::create("lock", 4096);
};

TEST(RobustLock, IsFreeAtFirstAndAfterAnUnlock) {
  const Shared shared;
  EXPECT_EQ(shared.lock().lock(), LockOutcome::kLocked);
  shared.lock().unlock();
  EXPECT_EQ(shared.lock().lock(test_deadline()), LockOutcome::kLocked);
  shared.lock().unlock();
}

TEST(RobustLock, TheDeadlineEndsAWait) {
  const Shared shared;
  ASSERT_EQ(shared.lock().lock(), LockOutcome::kLocked);
  std::thread([&] {
    EXPECT_EQ(shared.lock().lock(os::deadline_after(1ms)), LockOutcome::kTimedOut);
    EXPECT_EQ(shared.lock().lock(os::Clock::now()), LockOutcome::kTimedOut);
  }).join();
  shared.lock().unlock();
}

TEST(RobustLock, ATryDoesNotWait) {
  const Shared shared;
  ASSERT_EQ(shared.lock().try_lock(), LockOutcome::kLocked);
  std::thread([&] { EXPECT_EQ(shared.lock().try_lock(), std::nullopt); }).join();
  shared.lock().unlock();
  ASSERT_EQ(shared.lock().spin_lock(), LockOutcome::kLocked);
  shared.lock().unlock();
}

TEST(RobustLock, ThreadsAndProcessesTakeTurns) {
  const Shared shared;
  constexpr int kTurns = 20'000;
  const auto count = [&] {
    for (int i = 0; i < kTurns; ++i) {
      if (shared.lock().lock(test_deadline()) != LockOutcome::kLocked) return 1;
      ++shared.value();
      shared.lock().unlock();
    }
    return 0;
  };
  Child child(count);
  std::thread thread(count);
  EXPECT_EQ(count(), 0);
  thread.join();
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_EQ(shared.value(), 3 * kTurns);
}

TEST(RobustLock, TheDeathOfItsHolderFreesIt) {
  const Shared shared;
  Child child([&] {
    if (shared.lock().lock() != LockOutcome::kLocked) return 1;
    shared.value() = 1;
    for (;;) ::pause();
  });
  while (*static_cast<volatile int*>(&shared.value()) == 0) std::this_thread::yield();
  EXPECT_EQ(shared.lock().lock(os::deadline_after(1ms)), LockOutcome::kTimedOut);
  child.kill();
  EXPECT_EQ(shared.lock().lock(test_deadline()), LockOutcome::kOwnerDied);
  shared.lock().unlock();
  EXPECT_EQ(shared.lock().lock(test_deadline()), LockOutcome::kLocked);
  shared.lock().unlock();
}

TEST(RobustLock, AWaiterIsWokenByTheDeathOfTheHolder) {
  const Shared shared;
  Child holder([&] {
    if (shared.lock().lock() != LockOutcome::kLocked) return 1;
    shared.value() = 1;
    for (;;) ::pause();
  });
  while (*static_cast<volatile int*>(&shared.value()) == 0) std::this_thread::yield();
  Child waiter([&] {
    if (shared.lock().lock(test_deadline()) != LockOutcome::kOwnerDied) return 1;
    shared.lock().unlock();
    return 0;
  });
  ASSERT_TRUE(waiter.wait_until_asleep());
  holder.kill();
  EXPECT_EQ(waiter.join(), os::ProcessEnd{});
}

}  // namespace
}  // namespace shoal::sync
