#include "shoal/sync/row_claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "shoal/os/clock.h"

namespace shoal::sync {
namespace {

TEST(RowClaims, RowsAreClaimedInOrderUntilItIsFull) {
  RowClaims claims{};
  EXPECT_EQ(claims.claim(2, 3).first, 0u);
  const RowRange last = claims.claim(2, 3);
  EXPECT_EQ(last.first, 2u);
  EXPECT_EQ(last.count, 1u);
  EXPECT_EQ(claims.claim(1, 3).count, 0u);
  EXPECT_EQ(claims.claimed(), 3u);
}

TEST(RowClaims, AClosedBatchGivesNothingUntilItIsOpen) {
  RowClaims claims{};
  claims.claim(1, 4);
  EXPECT_EQ(claims.close(), 1u);
  EXPECT_EQ(claims.close(), 1u);
  EXPECT_EQ(claims.claim(1, 4).count, 0u);
  EXPECT_EQ(claims.claimed(), 1u);
  claims.open();
  EXPECT_EQ(claims.claim(1, 4).first, 0u);
}

TEST(RowWord, ARowThatIsMissedIsReturnedByItsClaimer) {
  RowWord row{};
  EXPECT_TRUE(row.miss());
  EXPECT_EQ(row.state(), RowState::kMissed);
  EXPECT_FALSE(row.ready());
  EXPECT_EQ(row.state(), RowState::kReturned);
  row.clear();
  EXPECT_TRUE(row.ready());
  EXPECT_FALSE(row.miss());
  EXPECT_EQ(row.state(), RowState::kReady);
}

TEST(RowClaims, ThreadsClaimEveryRowOnce) {
  constexpr std::uint32_t kRows = 100'000;
  RowClaims claims{};
  std::vector<std::atomic<int>> claimed(kRows);
  const auto claim = [&](std::uint32_t count) {
    for (RowRange range; (range = claims.claim(count, kRows)).count != 0;) {
      for (std::uint32_t i = 0; i < range.count; ++i) ++claimed[range.first + i];
    }
  };
  std::thread other(claim, 3);
  claim(1);
  other.join();
  EXPECT_TRUE(std::all_of(claimed.begin(), claimed.end(), [](const auto& n) { return n == 1; }));
}

TEST(RowWord, ClaimerAndOwnerAgreeWhetherItIsMissed) {
  constexpr int kRows = 20'000;  // fewer on a machine where each takes a switch between processes
  const os::Deadline enough = os::deadline_after(std::chrono::seconds(5));
  std::vector<RowWord> rows(kRows);
  std::vector<std::uint8_t> in_time(kRows), missed(kRows);
  std::atomic<int> here{-1}, there{-1};
  const auto meet = [](std::atomic<int>& mine, const std::atomic<int>& others, int row) {
    mine = row;
    while (others < row) std::this_thread::yield();
  };
  std::thread claimer([&] {
    for (int i = 0; i < kRows; ++i) {
      meet(there, here, i);
      in_time[i] = rows[i].ready();
    }
  });
  int met = 0;
  for (; met < kRows && os::Clock::now() < enough; ++met) {
    meet(here, there, met);
    missed[met] = rows[met].miss();
  }
  here = kRows;
  claimer.join();
  for (int i = 0; i < met; ++i) {
    ASSERT_NE(in_time[i], missed[i]) << i;
    ASSERT_EQ(rows[i].state(), in_time[i] ? RowState::kReady : RowState::kReturned) << i;
  }
}

}  // namespace
}  // namespace shoal::sync
