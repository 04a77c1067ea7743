#include "shoal/shm/board.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::shm {
namespace {

const std::vector<std::string> kNames = {"steps", "waits"};

os::Fd copy_of(const Board& board) { return os::Fd(::dup(board.fd())); }

TEST(Board, ReadsAsItWasWritten) {
  Board board("environments", kNames);
  board.set_title("CartPole-v1");
  board[0].set(41);
  board[0].add();
  const BoardReading reading = Board::read(copy_of(board));
  EXPECT_EQ(reading.pid, ::getpid());
  EXPECT_EQ(reading.born, start_of_process(::getpid()));
  EXPECT_FALSE(reading.ended);
  EXPECT_EQ(reading.kind, "environments");
  EXPECT_EQ(reading.title, "CartPole-v1");
  EXPECT_EQ(reading.counters, (decltype(reading.counters){{"steps", 42}, {"waits", 0}}));
}

TEST(Board, TextsAreCutToFit) {
  Board board(std::string(100, 'k'), kNames);
  board.set_title(std::string(100, 't'));
  EXPECT_EQ(Board::read(copy_of(board)).kind, std::string(23, 'k'));
  EXPECT_EQ(Board::read(copy_of(board)).title, std::string(63, 't'));
  board.set_title("short");
  EXPECT_EQ(Board::read(copy_of(board)).title, "short");
}

TEST(Board, ItsEndIsSeenByWhoStillHoldsIt) {
  os::Fd held;
  {
    Board board("environments", kNames);
    held = copy_of(board);
  }
  EXPECT_TRUE(Board::read(std::move(held)).ended);
}

TEST(Board, AForkedChildDoesNotEndIt) {
  auto board = std::make_unique<Board>("environments", kNames);
  os::testing::Child child([&] {
    (*board)[0].set(7);
    board.reset();
    return 0;
  });
  EXPECT_TRUE(child.join().has_value());
  EXPECT_FALSE(Board::read(copy_of(*board)).ended);
  EXPECT_EQ((*board)[0].value(), 7);
}

TEST(Board, WithoutADescriptorItCountsUnseen) {
#ifdef __SANITIZE_ADDRESS__
  // UndefinedBehaviorSanitizer reads an object's type through a pipe, and takes it for a wrong one
  // where it gets none.
  GTEST_SKIP() << "a sanitizer needs descriptors itself, which this test takes away";
#endif
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  Board board("environments", kNames);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(board.fd(), -1);
  EXPECT_EQ(board[1].add(3), 3);
  board.set_title("unseen");
  const Board moved = std::move(board);
  EXPECT_EQ(moved[1].value(), 3);
}

TEST(Board, WhatIsNoBoardIsRefused) {
  const Arena other = Arena::create("other", 4096);
  EXPECT_THROW(Board::read(os::Fd(::dup(other.fd()))), Error);
  EXPECT_THROW(Board::read(os::Fd(::dup(STDERR_FILENO))), Error);
}

TEST(StartOfProcess, IsZeroForNone) {
  EXPECT_NE(start_of_process(1), 0u);
  EXPECT_EQ(start_of_process(1 << 30), 0u);
}

}  // namespace
}  // namespace shoal::shm
