#include "shoal/sync/condition.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "shoal/sync/owned_lock.h"
#include "shoal/sync/testing/owners_fixture.h"

namespace shoal::sync {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using os::testing::Child;
using os::testing::test_deadline;

constexpr std::uint32_t kSlots = 4;

Shared<Condition> condition(std::uint32_t slots = kSlots) {
  Shared<Condition> shared;
  shared->init(slots);
  return shared;
}

TEST(Condition, NotifiesInTheOrderOfEntering) {
  const auto waiting = condition();
  const auto first = waiting->enter(kMe, all_live);
  const auto second = waiting->enter(kOther, all_live);
  const auto third = waiting->enter(kMe, all_live);
  EXPECT_EQ(waiting->waiting(), 3u);
  EXPECT_EQ(waiting->notify(2, all_live), 2u);
  EXPECT_EQ(waiting->waiting(), 1u);
  EXPECT_TRUE(waiting->leave(second));
  EXPECT_TRUE(waiting->leave(first));
  EXPECT_FALSE(waiting->leave(third));
  EXPECT_EQ(waiting->notify(9, all_live), 0u);
}

TEST(Condition, TheDeadlineEndsAWait) {
  const auto waiting = condition();
  SpinPolicy policy = short_spin();
  const auto at = waiting->enter(kMe, all_live);
  EXPECT_EQ(waiting->wait(at, policy, os::deadline_after(1ms)), WaitOutcome::kTimedOut);
  EXPECT_FALSE(waiting->leave(at));
}

TEST(Condition, ANotificationPassesTheDeadOver) {
  const auto waiting = condition();
  static_cast<void>(waiting->enter(kOther, all_live));
  const auto mine = waiting->enter(kMe, all_live);
  EXPECT_EQ(waiting->notify(1, other_is_dead), 1u);
  EXPECT_TRUE(waiting->leave(mine));
  EXPECT_EQ(waiting->waiting(), 0u);
}

TEST(Condition, WhatTheDeadWereNotifiedOfIsHandedOn) {
  const auto waiting = condition();
  static_cast<void>(waiting->enter(kOther, all_live));
  const auto mine = waiting->enter(kMe, all_live);
  EXPECT_EQ(waiting->notify(1, all_live), 1u);
  waiting->hand_on(all_live);
  EXPECT_EQ(waiting->waiting(), 1u);
  waiting->hand_on(other_is_dead);
  EXPECT_EQ(waiting->waiting(), 0u);
  EXPECT_TRUE(waiting->leave(mine));
  waiting->hand_on(other_is_dead);
}

TEST(Condition, TheDeadGiveTheirSlotsUp) {
  const auto waiting = condition(1);
  static_cast<void>(waiting->enter(kOther, all_live));
  const auto mine = waiting->enter(kMe, other_is_dead);
  EXPECT_EQ(waiting->notify(1, all_live), 1u);
  EXPECT_TRUE(waiting->leave(mine));
}

TEST(Condition, WhoFindsNoSlotWakesAtEveryNotification) {
  const auto waiting = condition(1);
  const auto placed = waiting->enter(kMe, all_live);
  const auto crowded = waiting->enter(kOther, all_live);
  EXPECT_EQ(waiting->park(crowded, os::Clock::now()), WaitOutcome::kTimedOut);
  EXPECT_EQ(waiting->notify(1, all_live), 1u);
  EXPECT_EQ(waiting->park(crowded, os::Clock::now()), WaitOutcome::kReady);
  EXPECT_TRUE(waiting->leave(crowded));
  EXPECT_TRUE(waiting->leave(placed));
}

/// Each waits until the number is its own modulo the number of players, then adds one.
void pass_a_token_around(bool (*at_once)(const Bodies&)) {
  struct Table {
    OwnedLock lock;
    alignas(64) std::byte condition[Condition::bytes(kSlots)];
  };
  const Shared<Table> table;
  auto* turn = reinterpret_cast<Condition*>(table->condition);
  turn->init(kSlots);
  constexpr int kPlayers = 3, kRounds = 1000;
  const auto play = [&](int index) {
    const Owner me = static_cast<Owner>(index + 1);
    SpinPolicy policy = no_spin();
    for (int round = 0; round < kRounds; ++round) {
      if (table->lock.park(me, test_deadline()) != WaitOutcome::kReady) return 1;
      while (table.number() % kPlayers != index) {
        const auto at = turn->enter(me, all_live);
        if (!table->lock.release()) return 2;
        if (turn->wait(at, policy, test_deadline()) != WaitOutcome::kReady) return 3;
        if (!turn->leave(at)) return 4;
        if (table->lock.park(me, test_deadline()) != WaitOutcome::kReady) return 5;
      }
      ++table.number();
      turn->notify(kPlayers, all_live);
      if (!table->lock.release()) return 6;
    }
    return 0;
  };
  EXPECT_TRUE(at_once({[&] { return play(0); }, [&] { return play(1); }, [&] { return play(2); }}));
  EXPECT_EQ(table.number(), kPlayers * kRounds);
}

TEST(Condition, ProcessesPassATokenAround) { pass_a_token_around(in_processes); }

TEST(Condition, ThreadsPassATokenAround) { pass_a_token_around(in_threads); }

/// A waiter that came first is notified and killed before its n-th operation: the one behind it
/// gets what it did not take.
TEST(Condition, WhereverAWaiterIsKilledNoNotificationIsLost) {
  using Mortal = BasicCondition<MortalAtomics>;
  const Shared<Mortal> waiting;
  for (const bool notified : {false, true}) {
    Mortal::WaiterSlot first{}, second{};
    const int killed = kill_at_every_operation(
        [&] {
          std::memset(static_cast<void*>(&*waiting), 0, Mortal::bytes(kSlots));
          waiting->init(kSlots);
          first = waiting->enter(kOther, all_live);
          second = waiting->enter(kMe, all_live);
          if (notified) waiting->notify(1, all_live);
        },
        [&] {
          static_cast<void>(waiting->park(first, os::Clock::now()));
          if (waiting->leave(first)) waiting.raise_flag();
        },
        [&](int operations) {
          if (!notified) waiting->notify(1, other_is_dead);
          waiting->hand_on(other_is_dead);
          EXPECT_TRUE(waiting->leave(second)) << operations;
        });
    EXPECT_GE(killed, 3);
  }
}

TEST(Condition, WhereverANotifierIsKilledTheWaitersCanBeNotified) {
  using Mortal = BasicCondition<MortalAtomics>;
  const Shared<Mortal> waiting;
  Mortal::WaiterSlot first{}, second{};
  const int killed = kill_at_every_operation(
      [&] {
        std::memset(static_cast<void*>(&*waiting), 0, Mortal::bytes(kSlots));
        waiting->init(kSlots);
        first = waiting->enter(kMe, all_live);
        second = waiting->enter(kMe, all_live);
      },
      [&] { waiting->notify(2, all_live); },
      [&](int operations) {
        waiting->notify(2, all_live);
        EXPECT_EQ(waiting->park(first, os::Clock::now()), WaitOutcome::kReady) << operations;
        EXPECT_EQ(waiting->park(second, os::Clock::now()), WaitOutcome::kReady) << operations;
        EXPECT_TRUE(waiting->leave(first));
        EXPECT_TRUE(waiting->leave(second));
      });
  EXPECT_GE(killed, 5);
}

}  // namespace
}  // namespace shoal::sync
