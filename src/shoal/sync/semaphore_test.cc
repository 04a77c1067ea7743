#include "shoal/sync/semaphore.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "shoal/sync/testing/owners_fixture.h"

namespace shoal::sync {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using os::testing::Child;
using os::testing::test_deadline;

constexpr std::uint32_t kSlots = 8;

Shared<Semaphore> semaphore(std::uint32_t value, std::uint32_t maximum = Semaphore::kMaxValue,
                            std::uint32_t slots = kSlots) {
  Shared<Semaphore> shared;
  shared->init(value, maximum, slots);
  return shared;
}

TEST(Semaphore, GivesAsManyPermitsAsItHas) {
  const auto permits = semaphore(2);
  EXPECT_TRUE(permits->try_acquire(kMe));
  EXPECT_TRUE(permits->try_acquire(kOther));
  EXPECT_FALSE(permits->try_acquire(kMe));
  EXPECT_EQ(permits->value(), 0u);
  EXPECT_EQ(permits->held(kMe), 1u);
  EXPECT_TRUE(permits->release(kMe));
  EXPECT_TRUE(permits->release(kOther));
  EXPECT_EQ(permits->value(), 2u);
  EXPECT_FALSE(permits->travels());
}

TEST(Semaphore, ABoundedOneTakesNoMoreBackThanItGave) {
  const auto permits = semaphore(1, 1);
  EXPECT_FALSE(permits->release(kMe));
  EXPECT_TRUE(permits->try_acquire(kMe));
  EXPECT_TRUE(permits->release(kMe));
  EXPECT_FALSE(permits->release(kMe));
}

TEST(Semaphore, TheDeadlineEndsAWait) {
  const auto permits = semaphore(0);
  SpinPolicy policy = short_spin();
  EXPECT_EQ(permits->acquire(kMe, policy, os::deadline_after(1ms)), WaitOutcome::kTimedOut);
  EXPECT_EQ(permits->park(kMe, os::Clock::now()), WaitOutcome::kTimedOut);
}

TEST(Semaphore, TheDeadsPermitsComeBackOnce) {
  const auto permits = semaphore(3);
  EXPECT_TRUE(permits->try_acquire(kOther));
  EXPECT_TRUE(permits->try_acquire(kMe));
  EXPECT_TRUE(permits->try_acquire(kOther));
  EXPECT_EQ(permits->recover(all_live), 0u);
  Owner dead = kNobody;
  EXPECT_EQ(permits->recover(other_is_dead, &dead), 2u);
  EXPECT_EQ(dead, kOther);
  EXPECT_EQ(permits->recover(other_is_dead), 0u);
  EXPECT_EQ(permits->value(), 2u);
}

TEST(Semaphore, PermitsThatOthersReleaseTravelAndDoNotComeBack) {
  const auto places = semaphore(3, 3);
  EXPECT_TRUE(places->try_acquire(kOther));
  EXPECT_TRUE(places->try_acquire(kOther));
  EXPECT_TRUE(places->release(kMe));
  EXPECT_TRUE(places->travels());
  EXPECT_EQ(places->recover(other_is_dead), 0u);
  EXPECT_EQ(places->value(), 2u);
  EXPECT_TRUE(places->release(kMe));
  EXPECT_FALSE(places->release(kMe));

  const auto signal = semaphore(0, Semaphore::kMaxValue, 0);
  EXPECT_TRUE(signal->release(kMe));
  EXPECT_TRUE(signal->try_acquire(kOther));
  EXPECT_EQ(signal->recover(other_is_dead), 0u);
  EXPECT_EQ(signal->value(), 0u);
}

TEST(Semaphore, MoreHoldersThanPlacesLetPermitsTravel) {
  const auto permits = semaphore(4, 4, 2);
  for (const Owner owner : {1, 2, 3, 4}) EXPECT_TRUE(permits->try_acquire(owner));
  EXPECT_TRUE(permits->travels());
  EXPECT_FALSE(permits->try_acquire(kMe));
  for (const Owner owner : {1, 2, 3, 4}) EXPECT_TRUE(permits->release(owner));
  EXPECT_EQ(permits->value(), 4u);
}

TEST(Semaphore, EveryReleaseEndsAWait) {
  const auto signal = semaphore(0, Semaphore::kMaxValue, 0);
  constexpr int kSignals = 3000;
  const auto take = [&](Owner me) {
    SpinPolicy policy = no_spin();
    for (int i = 0; i < kSignals; ++i) {
      if (signal->acquire(me, policy, test_deadline()) != WaitOutcome::kReady) return 1;
    }
    return 0;
  };
  Child one([&] { return take(2); }), two([&] { return take(3); }), three([&] { return take(4); });
  for (int i = 0; i < 3 * kSignals; ++i) EXPECT_TRUE(signal->release(kMe));
  EXPECT_EQ(one.join(), os::ProcessEnd{});
  EXPECT_EQ(two.join(), os::ProcessEnd{});
  EXPECT_EQ(three.join(), os::ProcessEnd{});
  EXPECT_EQ(signal->value(), 0u);
}

TEST(Semaphore, ProcessesNeverHoldMoreThanThereAre) {
  const auto permits = semaphore(2);
  const auto use = [&](Owner me) {
    SpinPolicy policy = short_spin();
    auto& inside = *reinterpret_cast<std::atomic<int>*>(&permits.number());
    for (int i = 0; i < 3000; ++i) {
      if (permits->acquire(me, policy, test_deadline()) != WaitOutcome::kReady) return 1;
      if (inside.fetch_add(1) >= 2) return 2;
      inside.fetch_sub(1);
      if (!permits->release(me)) return 3;
    }
    return 0;
  };
  Child one([&] { return use(2); }), two([&] { return use(3); });
  std::thread thread([&] { EXPECT_EQ(use(4), 0); });
  EXPECT_EQ(use(kMe), 0);
  thread.join();
  EXPECT_EQ(one.join(), os::ProcessEnd{});
  EXPECT_EQ(two.join(), os::ProcessEnd{});
  EXPECT_EQ(permits->value(), 2u);
  EXPECT_FALSE(permits->travels());
}

TEST(Semaphore, WhereverItsHolderIsKilledEveryPermitComesBack) {
  using Mortal = BasicSemaphore<MortalAtomics>;
  const Shared<Mortal> permits;
  const int killed = kill_at_every_operation(
      [&] {
        std::memset(static_cast<void*>(&*permits), 0, Mortal::bytes(kSlots));
        permits->init(3, 3, kSlots);
        EXPECT_TRUE(permits->try_acquire(kMe));
      },
      [&] {
        for (int i = 0; i < 2; ++i) static_cast<void>(permits->park(kOther, os::kNoDeadline));
        for (int i = 0; i < 2; ++i) static_cast<void>(permits->release(kOther));
      },
      [&](int operations) {
        permits->recover(other_is_dead);
        EXPECT_EQ(permits->value(), 2u) << operations;
        EXPECT_TRUE(permits->release(kMe)) << operations;
        EXPECT_FALSE(permits->release(kMe)) << operations;
      });
  EXPECT_GE(killed, 20);
}

}  // namespace
}  // namespace shoal::sync
