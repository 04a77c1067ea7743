#include "shoal/collect/progress_board.h"

#include <gtest/gtest.h>

#include "shoal/os/error.h"

namespace shoal::collect {
namespace {

TEST(ProgressBoard, WhoAttachesItSeesAndOrders) {
  const ProgressBoard board = ProgressBoard::create(3);
  const ProgressBoard other(ipc::Block::acquire(board.block().offset(), board.block().serial()));
  ASSERT_EQ(other.collectors(), 3);
  ProgressLine line = other.line(1);
  line.count_rows(4);
  line.count_rows(5);
  line.give_sign();
  EXPECT_EQ(board.line(1).rows(), 9U);
  EXPECT_EQ(board.line(1).signs(), 3U);
  EXPECT_EQ(board.line(0).signs() + board.line(2).signs(), 0U);
  EXPECT_FALSE(line.is_stopped(1));
  board.line(1).stop(7);
  EXPECT_TRUE(line.is_stopped(7));
  EXPECT_FALSE(line.is_stopped(8));
  EXPECT_FALSE(other.line(0).is_stopped(1));
}

TEST(ProgressBoard, APlaceThatIsNoneIsRefused) {
  EXPECT_THROW(ProgressBoard::create(0), InvalidArgument);
  const ProgressBoard board = ProgressBoard::create(2);
  EXPECT_THROW(board.line(2), InvalidArgument);
  EXPECT_THROW(board.line(-1), InvalidArgument);
}

}  // namespace
}  // namespace shoal::collect
