#include "shoal/sync/barrier.h"

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

constexpr std::uint32_t kSlots = 4;

Shared<Barrier> barrier(std::uint32_t parties) {
  Shared<Barrier> shared;
  shared->init(parties, kSlots);
  return shared;
}

TEST(Barrier, TheLastToArriveLetsAllGoOn) {
  const auto meeting = barrier(2);
  const Arrival first = meeting->arrive(kMe);
  EXPECT_EQ(first.kind, ArrivalKind::kFirst);
  EXPECT_EQ(first.index, 0u);
  EXPECT_EQ(meeting->arrived(), 1u);
  const Arrival last = meeting->arrive(kOther);
  EXPECT_EQ(last.kind, ArrivalKind::kLast);
  EXPECT_EQ(last.index, 1u);
  EXPECT_EQ(meeting->arrive(3).kind, ArrivalKind::kFull);
  EXPECT_EQ(meeting->state(first.round), RoundState::kOpen);
  EXPECT_TRUE(meeting->complete(last.round));
  EXPECT_FALSE(meeting->complete(last.round));
  EXPECT_EQ(meeting->state(first.round), RoundState::kComplete);
  EXPECT_EQ(meeting->arrived(), 0u);
  EXPECT_EQ(meeting->arrive(3).round, first.round + 1);
}

TEST(Barrier, OneProcessMayArriveWithSeveralThreads) {
  const auto meeting = barrier(2);
  EXPECT_EQ(meeting->arrive(kMe).kind, ArrivalKind::kFirst);
  EXPECT_EQ(meeting->arrive(kMe).kind, ArrivalKind::kLast);
}

TEST(Barrier, AnAbortedOneIsBrokenUntilItIsReset) {
  const auto meeting = barrier(2);
  const Arrival waits = meeting->arrive(kMe);
  meeting->abort();
  EXPECT_TRUE(meeting->broken());
  EXPECT_EQ(meeting->culprit(), kNobody);
  EXPECT_EQ(meeting->state(waits.round), RoundState::kBroken);
  EXPECT_EQ(meeting->arrive(kOther).kind, ArrivalKind::kBroken);
  EXPECT_FALSE(meeting->complete(waits.round));
  meeting->reset();
  EXPECT_FALSE(meeting->broken());
  EXPECT_EQ(meeting->state(waits.round), RoundState::kBroken);
  EXPECT_EQ(meeting->arrive(kOther).kind, ArrivalKind::kFirst);
}

TEST(Barrier, WhoGivesUpBreaksItsOwnRoundOnly) {
  const auto meeting = barrier(1);
  const Arrival first = meeting->arrive(kMe);
  EXPECT_TRUE(meeting->complete(first.round));
  meeting->abandon(first.round);
  EXPECT_FALSE(meeting->broken());
  meeting->abandon(meeting->arrive(kMe).round);
  EXPECT_TRUE(meeting->broken());
}

TEST(Barrier, AResetBreaksTheRoundOfThoseThatWait) {
  const auto meeting = barrier(2);
  const Arrival waits = meeting->arrive(kMe);
  meeting->reset();
  EXPECT_EQ(meeting->state(waits.round), RoundState::kBroken);
  EXPECT_EQ(meeting->arrive(kMe).index, 0u);
  EXPECT_EQ(meeting->arrive(kOther).kind, ArrivalKind::kLast);
}

TEST(Barrier, TheDeathOfAMemberBreaksItArrivedOrNot) {
  const auto meeting = barrier(2);
  static_cast<void>(meeting->arrive(kMe));
  EXPECT_TRUE(meeting->complete(meeting->arrive(kOther).round));
  static_cast<void>(meeting->arrive(kMe));
  meeting->check_members(all_live);
  EXPECT_FALSE(meeting->broken());
  meeting->check_members(other_is_dead);
  EXPECT_TRUE(meeting->broken());
  EXPECT_EQ(meeting->culprit(), kOther);
  meeting->reset();
  EXPECT_EQ(meeting->culprit(), kNobody);
  meeting->check_members(other_is_dead);
  EXPECT_FALSE(meeting->broken());
}

TEST(Barrier, WhoLeavesIsWaitedForNoMore) {
  const auto meeting = barrier(2);
  static_cast<void>(meeting->arrive(kMe));
  EXPECT_TRUE(meeting->complete(meeting->arrive(kOther).round));
  meeting->leave(kOther);
  static_cast<void>(meeting->arrive(kMe));
  meeting->check_members(other_is_dead);
  EXPECT_FALSE(meeting->broken());
  EXPECT_EQ(meeting->arrive(3).kind, ArrivalKind::kLast);
}

TEST(Barrier, NewMembersTakeThePlacesOfOldOnes) {
  const auto meeting = barrier(2);
  for (Owner owner = 1; owner < 40; owner += 2) {
    EXPECT_EQ(meeting->arrive(owner).kind, ArrivalKind::kFirst);
    EXPECT_TRUE(meeting->complete(meeting->arrive(owner + 1).round));
  }
}

TEST(Barrier, ProcessesMeetAThousandTimes) {
  const auto meeting = barrier(3);
  const auto meet = [&](Owner me) {
    SpinPolicy policy = no_spin();
    auto& met = *reinterpret_cast<std::atomic<int>*>(&meeting.number());
    for (int round = 0; round < 1000; ++round) {
      met.fetch_add(1);
      const Arrival arrival = meeting->arrive(me);
      if (arrival.kind == ArrivalKind::kLast) {
        if (met.load() != 3 * (round + 1) || !meeting->complete(arrival.round)) return 1;
      } else if (arrival.kind != ArrivalKind::kFirst ||
                 meeting->wait(arrival.round, policy, test_deadline()) != WaitOutcome::kReady ||
                 meeting->state(arrival.round) != RoundState::kComplete) {
        return 2;
      }
      if (met.load() < 3 * (round + 1)) return 3;
    }
    return 0;
  };
  Child one([&] { return meet(1); }), two([&] { return meet(2); });
  EXPECT_EQ(meet(3), 0);
  EXPECT_EQ(one.join(), os::ProcessEnd{});
  EXPECT_EQ(two.join(), os::ProcessEnd{});
}

TEST(Barrier, WhereverTheLastIsKilledTheOthersGoOnOrAreTold) {
  using Mortal = BasicBarrier<MortalAtomics>;
  const Shared<Mortal> meeting;
  Arrival waits{};
  const int killed = kill_at_every_operation(
      [&] {
        std::memset(static_cast<void*>(&*meeting), 0, Mortal::bytes(kSlots));
        meeting->init(2, kSlots);
        // Both are members.
        static_cast<void>(meeting->arrive(kOther));
        EXPECT_TRUE(meeting->complete(meeting->arrive(kMe).round));
        waits = meeting->arrive(kMe);
      },
      [&] { static_cast<void>(meeting->complete(meeting->arrive(kOther).round)); },
      [&](int operations) {
        meeting->check_members(other_is_dead);
        EXPECT_NE(meeting->state(waits.round), RoundState::kOpen) << operations;
        meeting->reset();
        EXPECT_EQ(meeting->arrive(kMe).kind, ArrivalKind::kFirst) << operations;
        EXPECT_EQ(meeting->arrive(3).kind, ArrivalKind::kLast) << operations;
      });
  EXPECT_GE(killed, 10);
}

}  // namespace
}  // namespace shoal::sync
