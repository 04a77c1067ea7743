#include "shoal/sync/event_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace shoal::sync {
namespace {

using Record = EventRing::Record;
using Outcome = EventRing::Outcome;

struct Ring {
  explicit Ring(std::size_t slots) : words(slots * EventRing::kSlotWords) {}
  EventRing view() { return {&next, words.data(), words.size() / EventRing::kSlotWords}; }
  EventRing::Word next{0};
  std::vector<EventRing::Word> words;
};

Record of(std::uint64_t number) { return {number, number * 3, ~number}; }

TEST(EventRing, WhatWasPushedIsReadInOrderAndNothingElse) {
  Ring ring(4);
  Record record{};
  EXPECT_EQ(ring.view().read(0, record), Outcome::kNotYet);
  for (std::uint64_t i = 0; i < 3; ++i) ring.view().push(of(i));
  EXPECT_EQ(ring.view().next(), 3U);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(ring.view().read(i, record), Outcome::kRead);
    EXPECT_EQ(record, of(i));
  }
  EXPECT_EQ(ring.view().read(3, record), Outcome::kNotYet);
}

TEST(EventRing, WhatWasOverwrittenIsLost) {
  Ring ring(4);
  for (std::uint64_t i = 0; i < 6; ++i) ring.view().push(of(i));
  Record record{};
  EXPECT_EQ(ring.view().read(0, record), Outcome::kLost);
  EXPECT_EQ(ring.view().read(1, record), Outcome::kLost);
  ASSERT_EQ(ring.view().read(2, record), Outcome::kRead);
  EXPECT_EQ(record, of(2));
}

// A writer that died in a slot, or that stands in it for a whole lap.
TEST(EventRing, ASlotThatIsBeingWrittenIsLeftOut) {
  Ring ring(2);
  ring.words[0].store(EventRing::kWriting);
  for (std::uint64_t i = 0; i < 4; ++i) ring.view().push(of(i));
  Record record{};
  EXPECT_EQ(ring.view().read(0, record), Outcome::kLost);
  EXPECT_EQ(ring.view().read(2, record), Outcome::kNotYet);
  ASSERT_EQ(ring.view().read(3, record), Outcome::kRead);
  EXPECT_EQ(record, of(3));
}

TEST(EventRing, WhatIsReadWhileThreadsWriteIsWhole) {
  constexpr std::uint64_t kEach = 20'000;
  constexpr int kWriters = 3;
  Ring ring(8);
  std::atomic<int> torn = 0;
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < kEach; ++i) ring.view().push(of(i));
    });
  }
  threads.emplace_back([&] {
    Record record{};
    for (std::uint64_t number = 0; number < kEach * kWriters; ++number) {
      if (ring.view().read(number, record) == Outcome::kRead) torn += record != of(record[0]);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(ring.view().next(), kEach * kWriters);
}

}  // namespace
}  // namespace shoal::sync
