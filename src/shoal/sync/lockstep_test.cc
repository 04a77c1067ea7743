#include "shoal/sync/lockstep.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <thread>
#include <vector>

#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/spin_policy.h"

namespace shoal::sync {
namespace {

using os::ProcessEnd;
using os::testing::Child;
using os::testing::test_deadline;

constexpr std::uint32_t kMembers = 3;
constexpr int kRounds = 2'000;

/// What each member wrote, in two alternating buffers.
struct Shared {
  Doorbell doors[kMembers];
  int places[2][kMembers];
};

/// Goes through all rounds; how often it read something else than what was written.
int go(Shared& shared, std::uint32_t me) {
  Lockstep steps(shared.doors, kMembers, me);
  SpinPolicy policy({.group_size = kMembers});
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    auto& buffer = shared.places[round % 2];
    buffer[me] = round * 10 + static_cast<int>(me);
    steps.arrive();
    while (true) {
      const WaitOutcome outcome = steps.wait(policy, test_deadline());
      if (outcome == WaitOutcome::kReady) break;
      if (outcome == WaitOutcome::kTimedOut) return -1;
    }
    for (std::uint32_t other = 0; other < kMembers; ++other)
      wrong += buffer[other] != round * 10 + static_cast<int>(other) ? 1 : 0;
  }
  return wrong;
}

TEST(Lockstep, ThreadsSeeWhatTheOthersWroteInEachRound) {
  Shared shared{};
  std::array<int, kMembers> wrong{};
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t me = 0; me < kMembers; ++me)
      threads.emplace_back([&, me] { wrong[me] = go(shared, me); });
  }
  EXPECT_EQ(wrong, (std::array<int, kMembers>{}));
}

TEST(Lockstep, ProcessesWithMappingsOfTheirOwnDo) {
  const auto arena = shm::Arena::create("lockstep test", sizeof(Shared));
  const auto member = [&](std::uint32_t me) {
    const auto mine = shm::Arena::attach(os::Fd::duplicate(arena.fd()));
    return go(*mine.at<Shared>(0), me) == 0 ? 0 : 1;
  };
  Child first([&] { return member(1); });
  Child second([&] { return member(2); });
  EXPECT_EQ(member(0), 0);
  EXPECT_EQ(first.join(), (ProcessEnd{.code = 0}));
  EXPECT_EQ(second.join(), (ProcessEnd{.code = 0}));
}

TEST(Lockstep, AWaitThatTimesOutNamesWhoIsMissingAndGoesOn) {
  Shared shared{};
  Lockstep first(shared.doors, kMembers, 0), second(shared.doors, kMembers, 1),
      third(shared.doors, kMembers, 2);
  first.arrive();
  EXPECT_EQ(first.park(os::Deadline::min()), WaitOutcome::kTimedOut);
  EXPECT_EQ(first.missing(), 1u);
  second.arrive();
  EXPECT_EQ(first.park(os::Deadline::min()), WaitOutcome::kTimedOut);
  EXPECT_EQ(first.missing(), 2u);
  third.arrive();
  for (auto* member : {&first, &second, &third})
    EXPECT_EQ(member->park(os::Deadline::min()), WaitOutcome::kReady);
}

}  // namespace
}  // namespace shoal::sync
