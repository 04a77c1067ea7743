#include "shoal/sync/sleepers.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/robust_lock.h"
#include "shoal/sync/testing/counting_atomics.h"

namespace shoal::sync {
namespace {

using namespace std::chrono_literals;
using os::testing::Child;
using os::testing::test_deadline;
using testing::CountingAtomics;
using CountingSleepers = BasicSleepers<CountingAtomics>;

/// A number of items that processes and threads bring and take.
struct Shared {
  Shared() { lock().init(); }
  RobustLock& lock() const { return *arena.at<RobustLock>(0); }
  Sleepers& sleepers() const { return *arena.at<Sleepers>(sizeof(RobustLock)); }
  int& items() const { return *arena.at<int>(sizeof(RobustLock) + sizeof(Sleepers)); }

  void bring(int count) const {
    for (int i = 0; i < count; ++i) {
      static_cast<void>(lock().spin_lock());
      ++items();
      const auto whom = sleepers().call_one();
      lock().unlock();
      sleepers().wake(whom);
    }
  }

  /// False when one of them does not come.
  bool take(int count) const {
    while (count > 0) {
      static_cast<void>(lock().spin_lock());
      if (items() > 0) {
        --items();
        --count;
        lock().unlock();
        continue;
      }
      const std::uint32_t ticket = sleepers().enlist();
      lock().unlock();
      if (sleepers().sleep(ticket, test_deadline()) == WaitOutcome::kTimedOut) return false;
    }
    return true;
  }

  shm::Arena arena = shm::Arena::create("sleepers", 4096);
};

TEST(Sleepers, ACallWithoutSleepersIsNoSystemCall) {
  CountingSleepers sleepers{};
  CountingAtomics::wakes = 0;
  sleepers.wake(sleepers.call_one());
  sleepers.wake(sleepers.call_all());
  EXPECT_EQ(CountingAtomics::wakes, 0);
}

TEST(Sleepers, ACallBeforeTheSleepEndsItAtOnce) {
  Sleepers sleepers{};
  const std::uint32_t ticket = sleepers.enlist();
  sleepers.wake(sleepers.call_one());
  EXPECT_EQ(sleepers.sleep(ticket, os::kNoDeadline), WaitOutcome::kReady);
}

TEST(Sleepers, WhoLeavesIsNotCalledAnyMore) {
  CountingSleepers sleepers{};
  const std::uint32_t ticket = sleepers.enlist();
  ASSERT_EQ(sleepers.sleep(ticket, os::deadline_after(1ms)), WaitOutcome::kTimedOut);
  sleepers.leave(ticket);
  EXPECT_FALSE(sleepers.any());
}

TEST(Sleepers, AKilledSleeperCostsOneNeedlessWake) {
  const Shared shared;
  Child child([&] { return shared.take(1) ? 0 : 1; });
  ASSERT_TRUE(child.wait_until_asleep());
  child.kill();
  EXPECT_TRUE(shared.sleepers().any());
  shared.bring(1);
  EXPECT_FALSE(shared.sleepers().any());
  EXPECT_TRUE(shared.take(1));
}

TEST(Sleepers, EveryItemIsTakenByThreadsAndProcesses) {
  const Shared shared;
  constexpr int kItems = 10'000;
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(std::make_unique<Child>([&] { return shared.take(kItems) ? 0 : 1; }));
  }
  std::thread bringer([&] { shared.bring(2 * kItems); });
  shared.bring(2 * kItems);
  EXPECT_TRUE(shared.take(kItems));
  bringer.join();
  for (auto& child : children) EXPECT_EQ(child->join(), os::ProcessEnd{});
  EXPECT_EQ(shared.items(), 0);
}

}  // namespace
}  // namespace shoal::sync
