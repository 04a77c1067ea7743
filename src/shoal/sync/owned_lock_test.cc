#include "shoal/sync/owned_lock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "shoal/sync/testing/owners_fixture.h"

namespace shoal::sync {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using os::testing::Child;
using os::testing::test_deadline;

TEST(OwnedLock, SaysWhoseItIs) {
  OwnedLock lock{};
  EXPECT_EQ(lock.owner(), kNobody);
  EXPECT_TRUE(lock.try_acquire(kMe));
  EXPECT_EQ(lock.owner(), kMe);
  EXPECT_FALSE(lock.try_acquire(kOther));
  EXPECT_FALSE(lock.try_acquire(kMe));
  EXPECT_TRUE(lock.release());
  EXPECT_FALSE(lock.release());
  EXPECT_TRUE(lock.try_acquire(kMaxOwner));
  EXPECT_EQ(lock.owner(), kMaxOwner);
}

TEST(OwnedLock, TheDeadlineEndsAWait) {
  OwnedLock lock{};
  SpinPolicy policy = short_spin();
  ASSERT_TRUE(lock.try_acquire(kMe));
  EXPECT_EQ(lock.acquire(kOther, policy, os::deadline_after(1ms)), WaitOutcome::kTimedOut);
  EXPECT_EQ(lock.park(kOther, os::Clock::now()), WaitOutcome::kTimedOut);
  EXPECT_EQ(lock.owner(), kMe);
}

TEST(OwnedLock, OnlyTheDeadOwnersLockIsRecovered) {
  OwnedLock lock{};
  EXPECT_FALSE(lock.recover(kOther, kMe));
  ASSERT_TRUE(lock.try_acquire(kOther));
  EXPECT_FALSE(lock.recover(3, kMe));
  EXPECT_TRUE(lock.recover(kOther, kMe));
  EXPECT_EQ(lock.owner(), kMe);
  EXPECT_FALSE(lock.recover(kOther, 3));
}

TEST(OwnedLock, AnyProcessReleasesIt) {
  const Shared<OwnedLock> lock;
  ASSERT_TRUE(lock->try_acquire(kMe));
  Child child([&] { return lock->release() ? 0 : 1; });
  EXPECT_EQ(lock->park(kMe, test_deadline()), WaitOutcome::kReady);
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

TEST(OwnedLock, ThreadsAndProcessesTakeTurns) {
  for (const bool spin : {false, true}) {
    const Shared<OwnedLock> lock;
    constexpr int kTurns = 5'000;
    const auto count = [&](Owner me) {
      SpinPolicy policy = spin ? short_spin() : no_spin();
      for (int i = 0; i < kTurns; ++i) {
        if (lock->acquire(me, policy, test_deadline()) != WaitOutcome::kReady) return 1;
        ++lock.number();
        if (!lock->release()) return 1;
      }
      return 0;
    };
    Child child([&] { return count(kOther); });
    Child third([&] { return count(3); });
    std::thread thread([&] { EXPECT_EQ(count(4), 0); });
    EXPECT_EQ(count(kMe), 0);
    thread.join();
    ASSERT_EQ(child.join(), os::ProcessEnd{});
    ASSERT_EQ(third.join(), os::ProcessEnd{});
    EXPECT_EQ(lock.number(), 4 * kTurns);
    EXPECT_EQ(lock->owner(), kNobody);
  }
}

TEST(OwnedLock, WhereverItsOwnerIsKilledItIsFreeOrRecovered) {
  using Lock = BasicOwnedLock<MortalAtomics>;
  const Shared<Lock> lock;
  const int killed =
      kill_at_every_operation([&] { EXPECT_EQ(lock->owner(), kNobody); },
                              [&] {
                                static_cast<void>(lock->park(kOther, os::kNoDeadline));
                                static_cast<void>(lock->release());
                              },
                              [&](int) {
                                if (!lock->try_acquire(kMe)) {
                                  EXPECT_TRUE(lock->recover(kOther, kMe));
                                }
                                EXPECT_TRUE(lock->release());
                              });
  EXPECT_GE(killed, 3);
}

TEST(OwnedLock, AWaiterThatIsKilledTakesNothing) {
  const Shared<OwnedLock> lock;
  ASSERT_TRUE(lock->try_acquire(kMe));
  Child waiter([&] { return lock->park(kOther, os::kNoDeadline) == WaitOutcome::kReady ? 0 : 1; });
  ASSERT_TRUE(waiter.wait_until_asleep());
  waiter.kill();
  EXPECT_TRUE(lock->release());
  EXPECT_TRUE(lock->try_acquire(kMe));
}

}  // namespace
}  // namespace shoal::sync
