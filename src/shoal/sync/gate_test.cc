#include "shoal/sync/gate.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace shoal::sync {
namespace {

TEST(Gate, IsOpenAndEmptyAtFirst) {
  Gate<2> gate{};
  EXPECT_FALSE(gate.is_closed());
  EXPECT_FALSE(gate.is_inside(0));
  EXPECT_TRUE(gate.try_enter(0));
  EXPECT_TRUE(gate.is_inside(0));
  EXPECT_FALSE(gate.is_inside(1));
  gate.leave(0);
  EXPECT_FALSE(gate.is_inside(0));
}

TEST(Gate, WhoIsInsideStaysAndNobodyElseComesWhileItIsClosed) {
  Gate<2> gate{};
  ASSERT_TRUE(gate.try_enter(0));
  gate.close();
  EXPECT_TRUE(gate.is_inside(0));
  EXPECT_FALSE(gate.try_enter(1));
  EXPECT_FALSE(gate.is_inside(1));
  gate.leave(0);
  EXPECT_FALSE(gate.try_enter(0));
  gate.open();
  EXPECT_TRUE(gate.try_enter(1));
}

TEST(Gate, WhoClosedItAndSawAllOutsideIsAlone) {
  constexpr std::size_t kMembers = 3;
  constexpr int kTurns = 3000;
  Gate<kMembers> gate{};
  std::vector<long> counts(kMembers);  // plain: ThreadSanitizer sees whoever touches them together
  std::vector<std::thread> members;
  for (std::size_t m = 0; m < kMembers; ++m) {
    members.emplace_back([&, m] {
      for (int turn = 0; turn < kTurns; ++turn) {
        while (!gate.try_enter(m)) std::this_thread::yield();
        ++counts[m];
        gate.leave(m);
      }
    });
  }
  for (long sum = 0; sum < static_cast<long>(kMembers) * kTurns;) {
    gate.close();
    for (std::size_t m = 0; m < kMembers; ++m)
      while (gate.is_inside(m)) std::this_thread::yield();
    sum = 0;
    for (const long count : counts) sum += count;
    gate.open();
  }
  for (std::thread& member : members) member.join();
  for (const long count : counts) EXPECT_EQ(count, kTurns);
}

}  // namespace
}  // namespace shoal::sync
