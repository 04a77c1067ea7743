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

/// Each writes a number of its own before it arrives, and reads the others' when it goes on.
void meet_a_thousand_times(bool (*at_once)(const Bodies&)) {
  constexpr int kParties = 3;
  const auto meeting = barrier(kParties);
  const auto meet = [&](int index) {
    SpinPolicy policy = no_spin();
    for (int round = 0; round < 1000; ++round) {
      const int parity = round % 2;  // the fastest is at most one round ahead
      meeting.number(2 * index + parity) = round;
      const Arrival arrival = meeting->arrive(index + 1);
      if (arrival.kind == ArrivalKind::kLast) {
        if (!meeting->complete(arrival.round)) return 1;
      } else if (arrival.kind != ArrivalKind::kFirst ||
                 meeting->wait(arrival.round, policy, test_deadline()) != WaitOutcome::kReady ||
                 meeting->state(arrival.round) != RoundState::kComplete) {
        return 2;
      }
      for (int other = 0; other < kParties; ++other) {
        if (meeting.number(2 * other + parity) != round) return 3;
      }
    }
    return 0;
  };
  EXPECT_TRUE(at_once({[&] { return meet(0); }, [&] { return meet(1); }, [&] { return meet(2); }}));
}

TEST(Barrier, ProcessesMeetAThousandTimes) { meet_a_thousand_times(in_processes); }

TEST(Barrier, ThreadsMeetAThousandTimes) { meet_a_thousand_times(in_threads); }

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
