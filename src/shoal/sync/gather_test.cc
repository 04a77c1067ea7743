#include "shoal/sync/gather.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/spin_policy.h"
#include "shoal/sync/testing/counting_atomics.h"

namespace shoal::sync {
namespace {

using namespace std::chrono_literals;
using os::ProcessEnd;
using os::testing::Child;
using os::testing::test_deadline;
using testing::CountingAtomics;

TEST(Gather, OnlyTheLastArrivalIsLast) {
  Gather gather{};
  gather.start(1, 3);
  EXPECT_FALSE(gather.arrive(1));
  EXPECT_FALSE(gather.arrive(1));
  EXPECT_EQ(gather.left(), 1u);
  EXPECT_TRUE(gather.arrive(1));
  EXPECT_EQ(gather.left(), 0u);
  EXPECT_EQ(gather.park(os::kNoDeadline), WaitOutcome::kReady);
}

TEST(Gather, NobodyExpectedIsReady) {
  Gather gather{};
  EXPECT_EQ(gather.park(os::kNoDeadline), WaitOutcome::kReady);
  EXPECT_FALSE(gather.arrive(0));
  EXPECT_EQ(gather.left(), 0u);
}

TEST(Gather, ALateArrivalForARoundThatWasGivenUpChangesNothing) {
  Gather gather{};
  gather.start(7, 2);
  EXPECT_FALSE(gather.arrive(7));
  EXPECT_EQ(gather.park(os::Deadline::min()), WaitOutcome::kTimedOut);
  gather.start(8, 1);
  EXPECT_FALSE(gather.arrive(7));
  EXPECT_EQ(gather.left(), 1u);
  EXPECT_TRUE(gather.arrive(8));
}

TEST(Gather, RoundsCountModulo2To15) {
  Gather gather{};
  gather.start(0x7fff'ffff, 1);
  EXPECT_FALSE(gather.arrive(0x7fff'fffe));
  EXPECT_TRUE(gather.arrive(0x7fff'ffff));
  gather.start(0x8000, Gather::kMaxArrivals);
  EXPECT_FALSE(gather.arrive(0x8000));
  EXPECT_EQ(gather.left(), Gather::kMaxArrivals - 1);
}

TEST(Gather, AWaiterMayArriveInTheSteadOfADeadWorker) {
  Gather gather{};
  gather.start(1, 2);
  EXPECT_FALSE(gather.arrive(1));
  EXPECT_EQ(gather.park(os::deadline_after(1ms)), WaitOutcome::kTimedOut);
  EXPECT_TRUE(gather.arrive(1));
  EXPECT_EQ(gather.park(os::kNoDeadline), WaitOutcome::kReady);
}

TEST(Gather, ArrivalsMakeNoSystemCallUnlessTheWaiterSleeps) {
  BasicGather<CountingAtomics> gather{};
  CountingAtomics::wakes = 0;
  gather.start(1, 2);
  gather.arrive(1);
  gather.arrive(1);
  EXPECT_EQ(CountingAtomics::wakes, 0);
  gather.start(2, 2);
  ASSERT_EQ(gather.park(os::Deadline::min()), WaitOutcome::kTimedOut);
  gather.arrive(2);
  EXPECT_EQ(CountingAtomics::wakes, 0);
  gather.arrive(2);
  EXPECT_EQ(CountingAtomics::wakes, 1);
}

// The last arrival of an older round was late with its wake.
TEST(Gather, ALateWakeOfAnOlderRoundDoesNotEndTheWait) {
  const shm::Arena arena = shm::Arena::create("gather", sizeof(Gather));
  Gather& gather = *arena.at<Gather>(0);
  gather.start(1, 1);
  Child waiter([&] { return static_cast<int>(gather.park(test_deadline())); });
  auto& word = *arena.at<os::FutexWord>(0);
  while (os::futex_wake_all(word) == 0) ASSERT_FALSE(waiter.pidfd().ended());
  ASSERT_TRUE(waiter.wait_until_asleep());
  EXPECT_TRUE(gather.arrive(1));
  EXPECT_EQ(waiter.join(), ProcessEnd{.code = static_cast<int>(WaitOutcome::kReady)});
}

/// What a caller and its workers share: a command down, results up.
struct Segment {
  static constexpr int kWorkers = 3;
  Doorbell door;
  Gather gather;
  int command;
  std::array<int, kWorkers> results;
};

/// The worker loop of DESIGN.md: the last to finish parks at once, the others may spin.
void work(Segment& segment, int index, std::chrono::nanoseconds cap) {
  SpinPolicy policy({.cap = cap});
  bool last = false;
  for (std::uint32_t seen = 0;; ++seen) {
    WaitOutcome outcome = WaitOutcome::kInterrupted;
    while (outcome == WaitOutcome::kInterrupted) {
      outcome = last ? segment.door.park(seen, test_deadline())
                     : segment.door.wait(seen, policy, test_deadline());
    }
    if (outcome == WaitOutcome::kTimedOut || segment.command < 0) return;
    segment.results[index] = segment.command * 10 + index;
    last = segment.gather.arrive(seen + 1);
  }
}

/// Returns how many rounds went as they should.
int call(Segment& segment, int rounds, std::chrono::nanoseconds cap) {
  SpinPolicy policy({.cap = cap});
  int right = 0;
  for (int round = 1; round <= rounds; ++round) {
    segment.command = round;
    segment.gather.start(segment.door.generation() + 1, Segment::kWorkers);
    segment.door.ring();
    WaitOutcome outcome = WaitOutcome::kInterrupted;
    while (outcome == WaitOutcome::kInterrupted) {
      outcome = segment.gather.wait(policy, test_deadline());
    }
    bool fine = outcome == WaitOutcome::kReady;
    for (int i = 0; i < Segment::kWorkers; ++i) {
      fine = fine && segment.results[i] == round * 10 + i;
    }
    if (fine) ++right;
  }
  segment.command = -1;
  segment.door.ring();
  return right;
}

TEST(Gather, ThreadsGatherEveryRound) {
  for (const auto cap : {0ns, std::chrono::nanoseconds(100us)}) {
    Segment segment{};
    std::vector<std::thread> workers;
    for (int i = 0; i < Segment::kWorkers; ++i)
      workers.emplace_back([&, i] { work(segment, i, cap); });
    EXPECT_EQ(call(segment, 1000, cap), 1000);
    for (auto& worker : workers) worker.join();
  }
}

TEST(Gather, ProcessesGatherEveryRound) {
  for (const auto cap : {0ns, std::chrono::nanoseconds(100us)}) {
    const shm::Arena arena = shm::Arena::create("segment", sizeof(Segment));
    const auto worker = [&](int index) {
      return [&, index] {
        const shm::Arena own = shm::Arena::attach(os::Fd::duplicate(arena.fd()));
        work(*own.at<Segment>(0), index, cap);
        return 0;
      };
    };
    Child first(worker(0)), second(worker(1)), third(worker(2));
    EXPECT_EQ(call(*arena.at<Segment>(0), 1000, cap), 1000);
    for (Child* child : {&first, &second, &third}) EXPECT_EQ(child->join(), ProcessEnd{});
  }
}

TEST(Gather, AWorkerKilledBeforeItArrivesLeavesTheRoundOpenAndTheWaiterBounded) {
  const shm::Arena arena = shm::Arena::create("segment", sizeof(Segment));
  Segment& segment = *arena.at<Segment>(0);
  segment.gather.start(1, 1);
  Child worker([&] {
    if (segment.door.park(0, test_deadline()) != WaitOutcome::kReady) return 1;
    return segment.gather.arrive(1) ? 0 : 2;
  });
  ASSERT_TRUE(worker.wait_until_asleep());
  worker.kill();
  segment.door.ring();
  EXPECT_EQ(segment.gather.park(os::deadline_after(1ms)), WaitOutcome::kTimedOut);
  EXPECT_EQ(segment.gather.left(), 1u);
}

}  // namespace
}  // namespace shoal::sync
