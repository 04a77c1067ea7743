#include "shoal/process/identity/board.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::process {
namespace {

TEST(Board, AnotherProcessCountsOnIt) {
  const auto board = Board::create();
  os::testing::Child child([&] {
    const auto attached = Board::attach(os::Fd::duplicate(board->fd()));
    attached->counter("episodes").add(3);
    return attached->fd() == -1 ? 0 : 1;
  });
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_EQ(board->counter("episodes").value(), 3);
  EXPECT_EQ(board->counters(),
            (std::vector<std::pair<std::string, std::int64_t>>{{"episodes", 3}}));
}

TEST(Board, ACounterThatManyAskForAtOnceIsMadeOnce) {
  const auto board = Board::create();
  constexpr int kNames = 100;
  const auto count = [&] {
    for (int i = 0; i < kNames; ++i) board->counter("name " + std::to_string(i)).add();
    return 0;
  };
  os::testing::Child child(count);
  std::thread thread(count);
  count();
  thread.join();
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  const auto counters = board->counters();
  ASSERT_EQ(counters.size(), static_cast<std::size_t>(kNames));
  for (const auto& [name, value] : counters) EXPECT_EQ(value, 3) << name;
}

TEST(Board, CountersAndValuesDoNotMeet) {
  const auto board = Board::create(500);
  for (std::size_t i = 0; i < Board::kCounters; ++i) board->counter(std::to_string(i)).set(-1);
  EXPECT_THROW(board->counter("one more"), InvalidArgument);
  EXPECT_TRUE(board->values().names().empty());
  EXPECT_EQ(board->values().capacity(), 500u);
}

TEST(Board, WhatIsNoneIsRefused) {
  EXPECT_THROW(Board::create(0), InvalidArgument);
  const shm::Arena other = shm::Arena::create("shoal vector env", 1 << 20);
  EXPECT_THROW(Board::attach(os::Fd::duplicate(other.fd())), Error);
}

}  // namespace
}  // namespace shoal::process
