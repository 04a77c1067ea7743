#include "shoal/sync/reply_word.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "shoal/os/clock.h"

namespace shoal::sync {
namespace {

TEST(ReplyWord, ARequestIsQueuedBegunFinishedAndReleased) {
  ReplyWord word{};
  EXPECT_EQ(word.state(), ReplyState::kFree);
  const std::uint32_t use = word.queue();
  EXPECT_TRUE(word.begin(use));
  EXPECT_FALSE(word.begin(use));
  EXPECT_TRUE(word.finish(use));
  EXPECT_EQ(word.state(), ReplyState::kDone);
  word.release(use);
  EXPECT_EQ(word.state(), ReplyState::kFree);
  EXPECT_NE(word.queue(), use);
}

TEST(ReplyWord, WhatIsAbandonedBeforeItBeginsIsFreeAtOnce) {
  ReplyWord word{};
  const std::uint32_t use = word.queue();
  EXPECT_TRUE(word.abandon(use));
  EXPECT_FALSE(word.begin(use));
  const std::uint32_t next = word.queue();
  EXPECT_FALSE(word.begin(use));
  EXPECT_TRUE(word.begin(next));
}

TEST(ReplyWord, WhatIsAbandonedWhileItRunsIsFreeWhenItIsFinished) {
  ReplyWord word{};
  const std::uint32_t use = word.queue();
  ASSERT_TRUE(word.begin(use));
  EXPECT_FALSE(word.abandon(use));
  EXPECT_EQ(word.state(), ReplyState::kAbandoned);
  EXPECT_FALSE(word.finish(use));
  EXPECT_EQ(word.state(), ReplyState::kFree);
}

TEST(ReplyWord, WhatIsAbandonedWhenItIsDoneIsFree) {
  ReplyWord word{};
  const std::uint32_t use = word.queue();
  ASSERT_TRUE(word.begin(use) && word.finish(use));
  EXPECT_TRUE(word.abandon(use));
  EXPECT_EQ(word.state(), ReplyState::kFree);
}

TEST(ReplyWord, AskerAndAnswererAgreeOnEveryUse) {
  constexpr int kUses = 20'000;  // fewer on a machine where each takes a switch between processes
  const os::Deadline enough = os::deadline_after(std::chrono::seconds(5));
  ReplyWord word{};
  std::atomic<std::uint32_t> offered{0};
  std::atomic<bool> over{false};
  std::uint32_t answered = 0;  // the use; written by the answerer between begin() and finish()
  std::thread answerer([&] {
    while (!over) {
      const std::uint32_t use = offered;
      if (!word.begin(use)) {
        std::this_thread::yield();
        continue;
      }
      answered = use;
      static_cast<void>(word.finish(use));
    }
  });
  for (int i = 0; i < kUses && os::Clock::now() < enough; ++i) {
    const std::uint32_t use = word.queue();
    offered = use;
    if (i % 3 == 0 && word.abandon(use)) continue;
    const bool wanted = i % 3 != 0;
    const ReplyState last = wanted ? ReplyState::kDone : ReplyState::kFree;
    while (word.state() != last) std::this_thread::yield();
    ASSERT_EQ(answered, use);
    if (wanted) word.release(use);
  }
  over = true;
  answerer.join();
  EXPECT_EQ(word.state(), ReplyState::kFree);
}

}  // namespace
}  // namespace shoal::sync
