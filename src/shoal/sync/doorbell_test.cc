#include "shoal/sync/doorbell.h"

#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/sync/testing/counting_atomics.h"

namespace shoal::sync {
namespace {

using namespace std::chrono_literals;
using os::ProcessEnd;
using os::testing::Child;
using os::testing::test_deadline;
using testing::CountingAtomics;

using CountingDoorbell = BasicDoorbell<CountingAtomics>;

TEST(Doorbell, ZeroBytesAreItsFirstState) {
  alignas(Doorbell) std::array<std::byte, sizeof(Doorbell)> bytes{};
  EXPECT_EQ(reinterpret_cast<Doorbell*>(bytes.data())->generation(), 0u);
}

TEST(Doorbell, ARingAdvancesTheGeneration) {
  Doorbell door{};
  EXPECT_EQ(door.ring(), 1u);
  EXPECT_EQ(door.ring(), 2u);
  EXPECT_EQ(door.generation(), 2u);
}

TEST(Doorbell, ARingBeforeTheWaitEndsItAtOnce) {
  Doorbell door{};
  SpinPolicy policy({.cap = 0ns});
  const std::uint32_t seen = door.generation();
  door.ring();
  EXPECT_EQ(door.park(seen, os::kNoDeadline), WaitOutcome::kReady);
  EXPECT_EQ(door.wait(seen, policy, os::kNoDeadline), WaitOutcome::kReady);
}

TEST(Doorbell, TheDeadlineEndsAWaitSpinningOrNot) {
  Doorbell door{};
  EXPECT_EQ(door.park(0, os::Deadline::min()), WaitOutcome::kTimedOut);
  EXPECT_EQ(door.park(0, os::deadline_after(1ms)), WaitOutcome::kTimedOut);
  for (const auto cap : {0ns, std::chrono::nanoseconds(1ms)}) {
    SpinPolicy policy({.cap = cap});
    EXPECT_EQ(door.wait(0, policy, os::Deadline::min()), WaitOutcome::kTimedOut);
    EXPECT_EQ(door.wait(0, policy, os::deadline_after(2ms)), WaitOutcome::kTimedOut);
  }
}

TEST(Doorbell, TellsWhetherSomebodyWentToSleepSinceTheLastRing) {
  Doorbell door{};
  EXPECT_FALSE(door.may_have_sleeper());
  EXPECT_EQ(door.park(0, os::deadline_after(1ms)), WaitOutcome::kTimedOut);
  EXPECT_TRUE(door.may_have_sleeper());
  door.ring();
  EXPECT_FALSE(door.may_have_sleeper());
}

TEST(Doorbell, ARingIsNoSystemCallWhenNobodySleeps) {
  CountingDoorbell door{};
  CountingAtomics::wakes = 0;
  door.ring();
  EXPECT_EQ(CountingAtomics::wakes, 0);
}

TEST(Doorbell, AWaiterThatGaveUpCostsOneNeedlessWake) {
  CountingDoorbell door{};
  ASSERT_EQ(door.park(0, os::Deadline::min()), WaitOutcome::kTimedOut);
  CountingAtomics::wakes = 0;
  door.ring();
  EXPECT_EQ(CountingAtomics::wakes, 1);
  door.ring();
  EXPECT_EQ(CountingAtomics::wakes, 1);
}

TEST(Doorbell, TheGenerationWraps) {
  Doorbell door{};
  const std::uint32_t last = 0xffff'fffe;  // generation 2^31 - 1, nobody asleep
  std::memcpy(static_cast<void*>(&door), &last, sizeof last);
  const std::uint32_t seen = door.generation();
  ASSERT_EQ(seen, 0x7fff'ffffu);
  ASSERT_EQ(door.park(seen, os::Deadline::min()), WaitOutcome::kTimedOut);
  EXPECT_EQ(door.ring(), 0u);
  EXPECT_EQ(door.park(seen, os::kNoDeadline), WaitOutcome::kReady);
}

/// A doorbell and room for what is said through it, in a segment.
struct Shared {
  Doorbell door;
  std::array<int, 32> words;
};

TEST(Doorbell, ARingWakesEverySleepingProcessAndShowsWhatWasWritten) {
  const shm::Arena arena = shm::Arena::create("doorbell", sizeof(Shared));
  Shared& shared = *arena.at<Shared>(0);
  const auto wait_for_the_word = [&] {
    const shm::Arena own = shm::Arena::attach(os::Fd::duplicate(arena.fd()));
    Shared& mine = *own.at<Shared>(0);
    if (&mine == &shared) return 2;
    if (mine.door.park(0, test_deadline()) != WaitOutcome::kReady) return 3;
    return mine.words[0] == 42 ? 0 : 1;
  };
  Child first(wait_for_the_word), second(wait_for_the_word);
  ASSERT_TRUE(first.wait_until_asleep());
  ASSERT_TRUE(second.wait_until_asleep());
  shared.words[0] = 42;
  shared.door.ring();
  EXPECT_EQ(first.join(), ProcessEnd{});
  EXPECT_EQ(second.join(), ProcessEnd{});
}

TEST(Doorbell, AKilledSleeperLeavesNothingBehind) {
  const shm::Arena arena = shm::Arena::create("doorbell", sizeof(CountingDoorbell));
  CountingDoorbell& door = *arena.at<CountingDoorbell>(0);
  Child sleeper([&] { return static_cast<int>(door.park(0, test_deadline())); });
  ASSERT_TRUE(sleeper.wait_until_asleep());
  sleeper.kill();
  CountingAtomics::wakes = 0;
  door.ring();
  door.ring();
  door.ring();
  EXPECT_EQ(CountingAtomics::wakes, 1);
}

/// Runs `wait` in a child that has a handler for SIGUSR1, sends that signal once it sleeps, and
/// returns the outcome.
int outcome_after_signal(const std::function<WaitOutcome()>& wait) {
  Child sleeper([&] {
    struct sigaction action{};
    action.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &action, nullptr);
    return static_cast<int>(wait());
  });
  EXPECT_TRUE(sleeper.wait_until_asleep());
  EXPECT_TRUE(sleeper.pidfd().send_signal(SIGUSR1));
  return sleeper.join()->code;
}

TEST(Doorbell, ASignalHandlerInterruptsTheWait) {
  Doorbell door{};
  EXPECT_EQ(outcome_after_signal([&] { return door.park(0, test_deadline()); }),
            static_cast<int>(WaitOutcome::kInterrupted));
}

// The ringer was late with its wake: the waiter saw the ring by itself and sleeps for the next one.
TEST(Doorbell, ALateWakeOfAnOlderRingDoesNotEndTheWait) {
  const shm::Arena arena = shm::Arena::create("doorbell", sizeof(Doorbell));
  Doorbell& door = *arena.at<Doorbell>(0);
  Child sleeper([&] { return static_cast<int>(door.park(0, test_deadline())); });
  auto& word = *arena.at<os::FutexWord>(0);
  while (os::futex_wake_all(word) == 0) ASSERT_FALSE(sleeper.pidfd().ended());
  ASSERT_TRUE(sleeper.wait_until_asleep());
  door.ring();
  EXPECT_EQ(sleeper.join(), ProcessEnd{.code = static_cast<int>(WaitOutcome::kReady)});
}

/// Two that ring each other in turn, each writing plain memory that the other reads.
void ping_pong(Doorbell& mine, Doorbell& other, int* words, bool begins, int rounds,
               std::chrono::nanoseconds cap, bool* fine) {
  SpinPolicy policy({.cap = cap});
  std::uint32_t seen = 0;
  for (int round = 1; round <= rounds; ++round) {
    if (begins) {
      words[0] = round;
      other.ring();
    }
    while (mine.wait(seen, policy, test_deadline()) == WaitOutcome::kInterrupted) {
    }
    seen = mine.generation();
    if (words[begins ? 1 : 0] != round) *fine = false;
    if (!begins) {
      words[1] = round;
      other.ring();
    }
  }
}

TEST(Doorbell, ThreadsSeeWhatWasWrittenBeforeTheRing) {
  for (const auto cap : {0ns, std::chrono::nanoseconds(100us)}) {
    Doorbell left{}, right{};
    std::array<int, 2> words{};
    bool left_fine = true, right_fine = true;
    std::thread peer([&] { ping_pong(right, left, words.data(), false, 2000, cap, &right_fine); });
    ping_pong(left, right, words.data(), true, 2000, cap, &left_fine);
    peer.join();
    EXPECT_TRUE(left_fine && right_fine);
  }
}

TEST(Doorbell, ProcessesSeeWhatWasWrittenBeforeTheRing) {
  struct Pair {
    Doorbell left, right;
    std::array<int, 2> words;
  };
  for (const auto cap : {0ns, std::chrono::nanoseconds(100us)}) {
    const shm::Arena arena = shm::Arena::create("two doorbells", sizeof(Pair));
    Pair& pair = *arena.at<Pair>(0);
    Child peer([&] {
      const shm::Arena own = shm::Arena::attach(os::Fd::duplicate(arena.fd()));
      Pair& mine = *own.at<Pair>(0);
      bool fine = true;
      ping_pong(mine.right, mine.left, mine.words.data(), false, 2000, cap, &fine);
      return fine ? 0 : 1;
    });
    bool fine = true;
    ping_pong(pair.left, pair.right, pair.words.data(), true, 2000, cap, &fine);
    EXPECT_TRUE(fine);
    EXPECT_EQ(peer.join(), ProcessEnd{});
  }
}

}  // namespace
}  // namespace shoal::sync
