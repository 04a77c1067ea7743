// Lock, Semaphore, Event, Condition and Barrier of a family of processes, and deaths among it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "shoal/ipc/sync/barrier.h"
#include "shoal/ipc/sync/condition.h"
#include "shoal/ipc/sync/event.h"
#include "shoal/ipc/sync/lock.h"
#include "shoal/ipc/sync/semaphore.h"
#include "shoal/os/testing/child.h"

namespace shoal::ipc {
namespace {

using namespace std::chrono_literals;
using os::testing::Child;
using os::testing::test_deadline;
using sync::WaitOutcome;

/// The heap's accounts are after a test what they were before it.
class SynchronizeTest : public testing::Test {
 protected:
  // What a process keeps: its heap and what it knows of the machine's load.
  static void SetUpTestSuite() {
    static_cast<void>(Heap::here());
    SharedSpinPolicy::of_holders().budget();
    SharedSpinPolicy::of_signals().budget();
  }
  void SetUp() override { before_ = Heap::here()->stats(); }
  void TearDown() override {
    Heap::here()->sweep();
    EXPECT_THAT(Heap::here()->check(), testing::IsEmpty());
    EXPECT_EQ(Heap::here()->stats().blocks, before_.blocks);
    EXPECT_EQ(Heap::here()->stats().references, before_.references);
  }

  HeapStats before_;
};

/// A child that does something, says so, and then is there until it is killed.
class Holder {
 public:
  template <class Body>
  explicit Holder(Body body)
      : child_([this, body]() mutable {
          body();
          ready_.set();
          for (;;) ::pause();
          return 0;
        }) {
    EXPECT_EQ(ready_.wait(0, test_deadline()), WaitOutcome::kReady);
  }
  void kill() { child_.kill(); }
  pid_t pid() const { return child_.pid(); }

 private:
  Event ready_;
  Child child_;
};

bool acquired(const Acquisition& result) { return result.outcome == WaitOutcome::kReady; }

TEST_F(SynchronizeTest, APlainLockIsReleasedByAnyProcess) {
  Lock lock(false, OwnerDeath::kRecover);
  ASSERT_TRUE(lock.try_acquire());
  EXPECT_FALSE(lock.try_acquire());
  EXPECT_TRUE(lock.is_mine());
  EXPECT_EQ(lock.depth(), 1u);
  Child child([&] {
    if (lock.is_mine() || lock.is_this_process()) return 1;
    return lock.release() == ReleaseOutcome::kReleased ? 0 : 2;
  });
  EXPECT_TRUE(acquired(lock.acquire(test_deadline())));
  EXPECT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_EQ(lock.release(), ReleaseOutcome::kReleased);
  EXPECT_EQ(lock.release(), ReleaseOutcome::kFree);
  EXPECT_EQ(lock.depth(), 0u);
}

TEST_F(SynchronizeTest, ARecursiveLockIsItsThreads) {
  Lock lock(true, OwnerDeath::kRecover);
  ASSERT_TRUE(lock.try_acquire());
  ASSERT_TRUE(acquired(lock.acquire()));
  EXPECT_EQ(lock.depth(), 2u);
  std::thread([&] {
    EXPECT_FALSE(lock.is_mine());
    EXPECT_TRUE(lock.is_this_process());
    EXPECT_FALSE(lock.try_acquire());
    EXPECT_EQ(lock.release(), ReleaseOutcome::kNotOwner);
    EXPECT_EQ(lock.acquire(os::deadline_after(1ms)).outcome, WaitOutcome::kTimedOut);
  }).join();
  Child child(
      [&] { return !lock.try_acquire() && lock.release() == ReleaseOutcome::kNotOwner ? 0 : 1; });
  EXPECT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_EQ(lock.release(), ReleaseOutcome::kReleased);
  EXPECT_TRUE(lock.is_mine());
  EXPECT_EQ(lock.release(), ReleaseOutcome::kReleased);
  EXPECT_FALSE(lock.is_mine());
  EXPECT_EQ(lock.release(), ReleaseOutcome::kNotOwner);
}

TEST_F(SynchronizeTest, AKilledOwnersLockIsRecoveredAndSaysSo) {
  for (const bool recursive : {false, true}) {
    Lock lock(recursive, OwnerDeath::kRecover);
    Holder owner([&] { static_cast<void>(lock.acquire()); });
    EXPECT_EQ(lock.acquire(os::deadline_after(5ms)).outcome, WaitOutcome::kTimedOut);
    EXPECT_EQ(lock.acquire_now().outcome, WaitOutcome::kTimedOut);
    std::thread killer([&] { owner.kill(); });
    const Acquisition mine = lock.acquire(test_deadline());
    killer.join();
    EXPECT_TRUE(acquired(mine));
    EXPECT_EQ(mine.dead, owner.pid());
    EXPECT_TRUE(lock.recovered());
    EXPECT_EQ(lock.depth(), 1u);
    EXPECT_EQ(lock.release(), ReleaseOutcome::kReleased);
    EXPECT_EQ(lock.acquire().dead, 0);
    EXPECT_FALSE(lock.recovered());
    EXPECT_EQ(lock.release(), ReleaseOutcome::kReleased);
  }
}

TEST_F(SynchronizeTest, ALockThatIgnoresDeathStaysLocked) {
  Lock lock(false, OwnerDeath::kIgnore);
  Holder owner([&] { static_cast<void>(lock.acquire()); });
  owner.kill();
  EXPECT_EQ(lock.acquire(os::deadline_after(5ms)).outcome, WaitOutcome::kTimedOut);
  EXPECT_EQ(lock.release(), ReleaseOutcome::kReleased);
}

TEST_F(SynchronizeTest, OfManyWaitersOneRecoversAndAllGetIt) {
  Lock lock(false, OwnerDeath::kRecover);
  Holder owner([&] { static_cast<void>(lock.acquire()); });
  const auto take = [&] {
    const Acquisition mine = lock.acquire(test_deadline());
    if (!acquired(mine) || lock.release() != ReleaseOutcome::kReleased) return 99;
    return mine.dead != 0 ? 1 : 0;
  };
  Child one(take), two(take), three(take);
  ASSERT_TRUE(one.wait_until_asleep() && two.wait_until_asleep() && three.wait_until_asleep());
  owner.kill();
  int recoveries = 0;
  for (Child* child : {&one, &two, &three}) {
    const auto end = child->join();
    ASSERT_TRUE(end && end->signal == 0 && end->code <= 1);
    recoveries += end->code;
  }
  EXPECT_EQ(recoveries, 1);
}

TEST_F(SynchronizeTest, AKilledHoldersPermitsComeBack) {
  Semaphore permits(3, 3, OwnerDeath::kRecover);
  Holder holder([&] {
    for (int i = 0; i < 3; ++i) static_cast<void>(permits.acquire());
  });
  EXPECT_EQ(permits.acquire_now().outcome, WaitOutcome::kTimedOut);
  std::thread killer([&] { holder.kill(); });
  const Acquisition mine = permits.acquire(test_deadline());
  killer.join();
  EXPECT_TRUE(acquired(mine));
  EXPECT_EQ(mine.dead, holder.pid());
  EXPECT_EQ(permits.value(), 2u);
  EXPECT_EQ(permits.held(), 1u);
  EXPECT_TRUE(permits.release());
  EXPECT_FALSE(permits.release());
}

TEST_F(SynchronizeTest, SignalsOfTheDeadAreNotSentAgain) {
  Semaphore signal(0, Semaphore::kMaxValue, OwnerDeath::kRecover);
  EXPECT_TRUE(signal.release());
  Holder receiver([&] { static_cast<void>(signal.acquire()); });
  receiver.kill();
  EXPECT_EQ(signal.acquire(os::deadline_after(5ms)).outcome, WaitOutcome::kTimedOut);
}

TEST_F(SynchronizeTest, AnEventWakesProcesses) {
  Event event;
  Child child([&] { return event.wait(0, test_deadline()) == WaitOutcome::kReady ? 0 : 1; });
  ASSERT_TRUE(child.wait_until_asleep());
  event.set();
  EXPECT_TRUE(event.is_set());
  EXPECT_EQ(child.join(), os::ProcessEnd{});
  event.clear();
  EXPECT_EQ(event.wait(event.sets(), os::deadline_after(1ms)), WaitOutcome::kTimedOut);
}

TEST_F(SynchronizeTest, AConditionTakesItsLockBackAsDeep) {
  Lock lock(true, OwnerDeath::kRecover);
  Condition condition;
  ASSERT_TRUE(lock.try_acquire() && lock.try_acquire());
  Child child([&] {
    if (!acquired(lock.acquire(test_deadline()))) return 1;
    if (condition.notify(1) != 1) return 2;
    return lock.release() == ReleaseOutcome::kReleased ? 0 : 3;
  });
  EXPECT_TRUE(condition.wait(lock, test_deadline()));
  EXPECT_EQ(lock.depth(), 2u);
  EXPECT_FALSE(condition.wait(lock, os::deadline_after(1ms)));
  EXPECT_EQ(condition.waiting(), 0u);
  EXPECT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_EQ(lock.release(), ReleaseOutcome::kReleased);
  EXPECT_EQ(lock.release(), ReleaseOutcome::kReleased);
}

TEST_F(SynchronizeTest, ANotificationIsNotLostOnAKilledWaiter) {
  Condition condition;
  Holder notified_first([&] { static_cast<void>(condition.enter()); });
  Holder killed_first([&] { static_cast<void>(condition.enter()); });
  const auto mine = condition.enter();
  EXPECT_EQ(condition.notify(1), 1u);
  notified_first.kill();
  killed_first.kill();
  EXPECT_EQ(condition.sleep(mine, test_deadline()), WaitOutcome::kReady);
  EXPECT_TRUE(condition.leave(mine));
}

TEST_F(SynchronizeTest, AKilledPartyBreaksTheBarrier) {
  Barrier barrier(2);
  Holder party([&] { static_cast<void>(barrier.arrive()); });
  EXPECT_EQ(barrier.arrived(), 1u);
  Barrier other(3);
  Holder waits([&] {
    static_cast<void>(barrier.complete(barrier.arrive().round));
    static_cast<void>(other.arrive());
  });
  const sync::Arrival mine = other.arrive();
  EXPECT_EQ(other.wait(mine.round, os::deadline_after(5ms)), WaitOutcome::kTimedOut);
  waits.kill();
  EXPECT_EQ(other.wait(mine.round, test_deadline()), WaitOutcome::kReady);
  EXPECT_EQ(other.state(mine.round), sync::RoundState::kBroken);
  EXPECT_EQ(other.culprit(), waits.pid());
  // The other one arrived once and was killed before it came again.
  const sync::Arrival next = barrier.arrive();
  EXPECT_EQ(next.kind, sync::ArrivalKind::kFirst);
  EXPECT_EQ(barrier.wait(next.round, test_deadline()), WaitOutcome::kReady);
  EXPECT_TRUE(barrier.broken());
  barrier.reset();
  EXPECT_FALSE(barrier.broken());
}

TEST_F(SynchronizeTest, WhoLeavesABarrierMayDie) {
  Barrier barrier(2);
  Holder party([&] {
    static_cast<void>(barrier.arrive());
    EXPECT_TRUE(barrier.complete(barrier.arrive().round));
    barrier.leave();
  });
  party.kill();
  const sync::Arrival mine = barrier.arrive();
  EXPECT_EQ(barrier.wait(mine.round, os::deadline_after(5ms)), WaitOutcome::kTimedOut);
  EXPECT_FALSE(barrier.broken());
}

}  // namespace
}  // namespace shoal::ipc
