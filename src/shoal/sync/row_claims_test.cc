#include "shoal/sync/row_claims.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace shoal::sync
