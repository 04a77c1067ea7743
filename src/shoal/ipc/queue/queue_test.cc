#include "shoal/ipc/queue/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shoal/os/fault_point.h"
#include "shoal/os/poll.h"
#include "shoal/os/testing/child.h"

namespace shoal::ipc {
namespace {

using namespace std::chrono_literals;
using os::testing::Child;
using os::testing::test_deadline;

constexpr os::Deadline kNow = os::Deadline::min();

QueueOutcome put(Queue& queue, const std::string& text, os::Deadline deadline = test_deadline()) {
  return queue.put(1, std::as_bytes(std::span(text)), {}, {deadline});
}

/// What comes; "…" when nothing does.
std::string get(Queue& queue, os::Deadline deadline = test_deadline()) {
  Message message;
  if (queue.get(message, {deadline}) != QueueOutcome::kDone) return "…";
  return {reinterpret_cast<const char*>(message.bytes().data()), message.bytes().size()};
}

/// The heap is as it was: nothing is held here that was not, and it all fits together.
class QueueTest : public ::testing::Test {
 protected:
  QueueTest() : heap_(Heap::here()), before_(heap_->stats().blocks) {}
  void TearDown() override {
    heap_->sweep();
    EXPECT_EQ(heap_->check(), std::vector<std::string>());
    EXPECT_EQ(heap_->stats().blocks, before_);
  }
  std::shared_ptr<Heap> heap_;
  std::uint64_t before_;
};

TEST_F(QueueTest, GivesBackMessagesOfAllSizesInOrder) {
  Queue queue = Queue::create();
  const std::size_t sizes[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 65'536, 1 << 20};
  for (const std::size_t size : sizes) {
    ASSERT_EQ(put(queue, std::string(size, 'x')), QueueOutcome::kDone);
  }
  EXPECT_EQ(queue.size(), std::size(sizes));
  for (const std::size_t size : sizes) EXPECT_EQ(get(queue), std::string(size, 'x'));
  EXPECT_EQ(queue.size(), 0u);
}

TEST_F(QueueTest, TheMemoryOfABurstIsGivenBackOnceItIsRead) {
  Queue queue = Queue::create();
  ASSERT_EQ(put(queue, "first"), QueueOutcome::kDone);
  const std::uint64_t small = heap_->stats().block_bytes;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3000; ++i) {
      ASSERT_EQ(put(queue, std::string(4000, 'a' + i % 26)), QueueOutcome::kDone);
    }
    EXPECT_GT(heap_->stats().block_bytes, small + (8u << 20));
    if (round == 0) {
      EXPECT_EQ(get(queue), "first");
    }
    for (int i = 0; i < 3000; ++i) ASSERT_EQ(get(queue), std::string(4000, 'a' + i % 26));
    EXPECT_EQ(heap_->stats().block_bytes, small);
  }
  ASSERT_EQ(put(queue, "last"), QueueOutcome::kDone);
  EXPECT_EQ(get(queue), "last");
}

TEST_F(QueueTest, KeepsTheTag) {
  Queue queue = Queue::create();
  ASSERT_EQ(queue.put(7, {}, {}, {kNow}), QueueOutcome::kDone);
  Message message;
  ASSERT_EQ(queue.get(message, {kNow}), QueueOutcome::kDone);
  EXPECT_EQ(message.tag(), 7);
}

TEST_F(QueueTest, GetOnEmptyTimesOut) {
  Queue queue = Queue::create();
  EXPECT_EQ(get(queue, kNow), "…");
  EXPECT_EQ(get(queue, os::deadline_after(5ms)), "…");
  EXPECT_EQ(queue.poll({kNow}), QueueOutcome::kTimedOut);
}

TEST_F(QueueTest, PutOnFullTimesOut) {
  Queue queue = Queue::create({.max_items = 2});
  ASSERT_EQ(put(queue, "a"), QueueOutcome::kDone);
  ASSERT_EQ(put(queue, "b"), QueueOutcome::kDone);
  EXPECT_EQ(put(queue, "c", kNow), QueueOutcome::kTimedOut);
  EXPECT_EQ(put(queue, "c", os::deadline_after(5ms)), QueueOutcome::kTimedOut);
  EXPECT_EQ(get(queue), "a");
  EXPECT_EQ(put(queue, "c", kNow), QueueOutcome::kDone);
}

TEST_F(QueueTest, MoreBytesThanItMayHoldWaitButOneMessageFitsAlways) {
  Queue queue = Queue::create({.max_bytes = 1000});
  ASSERT_EQ(put(queue, std::string(100'000, 'x'), kNow), QueueOutcome::kDone);
  EXPECT_EQ(put(queue, "y", kNow), QueueOutcome::kTimedOut);
  EXPECT_EQ(get(queue).size(), 100'000u);
  EXPECT_EQ(put(queue, std::string(999, 'x'), kNow), QueueOutcome::kDone);
  EXPECT_EQ(put(queue, "y", kNow), QueueOutcome::kDone);
  EXPECT_EQ(put(queue, "z", kNow), QueueOutcome::kTimedOut);
  get(queue), get(queue);
}

TEST_F(QueueTest, GrowsWithoutLimit) {
  Queue queue = Queue::create();
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(put(queue, std::to_string(i)), QueueOutcome::kDone);
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(get(queue), std::to_string(i));
}

TEST_F(QueueTest, AMessageHoldsItsBlocksUntilItGoes) {
  Queue queue = Queue::create();
  Block block = Block::allocate(100);
  const Offset offset = block.offset();
  const Token token{offset, block.serial()};
  ASSERT_EQ(queue.put(0, {}, std::span(&offset, 1), {kNow}), QueueOutcome::kDone);
  block = Block();
  EXPECT_TRUE(token.held(*heap_));
  Message message;
  ASSERT_EQ(queue.get(message, {kNow}), QueueOutcome::kDone);
  EXPECT_TRUE(token.held(*heap_));
  message.clear();
  EXPECT_FALSE(token.held(*heap_));
}

TEST_F(QueueTest, WhatNobodyTookGoesWithIt) {
  Queue queue = Queue::create();
  const Block block = Block::allocate(100);
  const Offset offset = block.offset();
  ASSERT_EQ(queue.put(0, {}, std::span(&offset, 1), {kNow}), QueueOutcome::kDone);
  ASSERT_EQ(put(queue, std::string(100'000, 'x')), QueueOutcome::kDone);
}

TEST_F(QueueTest, CountsTasksUntilTheyAreDone) {
  Queue queue = Queue::create();
  EXPECT_FALSE(queue.task_done());
  ASSERT_EQ(put(queue, "a"), QueueOutcome::kDone);
  EXPECT_EQ(queue.join({kNow}), QueueOutcome::kTimedOut);
  EXPECT_EQ(get(queue), "a");
  EXPECT_EQ(queue.join({kNow}), QueueOutcome::kTimedOut);
  std::thread joiner([&] { EXPECT_EQ(queue.join({test_deadline()}), QueueOutcome::kDone); });
  EXPECT_TRUE(queue.task_done());
  joiner.join();
  EXPECT_FALSE(queue.task_done());
}

TEST_F(QueueTest, ProcessesAndThreadsPutAndGetAtTheSameTime) {
  Queue queue = Queue::create({.max_items = 64});
  Queue sums = Queue::create();
  constexpr int kEach = 5'000;
  const auto produce = [&] {
    for (int i = 1; i <= kEach; ++i) {
      const std::string text = std::to_string(i) + std::string(i % 500 == 0 ? 10'000 : i % 50, ' ');
      if (put(queue, text) != QueueOutcome::kDone) return 1;
    }
    return 0;
  };
  const auto consume = [&] {
    long sum = 0;
    for (std::string text; (text = get(queue)) != "end";) {
      if (text == "…") return 1;
      sum += std::stol(text);
    }
    return put(sums, std::to_string(sum)) == QueueOutcome::kDone ? 0 : 1;
  };
  std::vector<std::unique_ptr<Child>> consumers, producers;
  for (int i = 0; i < 2; ++i) consumers.push_back(std::make_unique<Child>(consume));
  for (int i = 0; i < 2; ++i) producers.push_back(std::make_unique<Child>(produce));
  std::thread consumer([&] { EXPECT_EQ(consume(), 0); });
  EXPECT_EQ(produce(), 0);
  for (auto& child : producers) EXPECT_EQ(child->join(), os::ProcessEnd{});
  for (int i = 0; i < 3; ++i) ASSERT_EQ(put(queue, "end"), QueueOutcome::kDone);
  consumer.join();
  for (auto& child : consumers) EXPECT_EQ(child->join(), os::ProcessEnd{});
  long sum = 0;
  for (int i = 0; i < 3; ++i) sum += std::stol(get(sums));
  EXPECT_EQ(sum, 3L * kEach * (kEach + 1) / 2);
}

TEST_F(QueueTest, ThePeersEndIsTheEndOfTheQueue) {
  Queue queue = Queue::create();
  Block end = Block::allocate(1);
  const Token peer{end.offset(), end.serial()};
  ASSERT_EQ(put(queue, "last"), QueueOutcome::kDone);
  Message message;
  std::thread getter([&] {
    EXPECT_EQ(queue.get(message, {test_deadline(), &peer}), QueueOutcome::kDone);
    EXPECT_EQ(queue.get(message, {test_deadline(), &peer}), QueueOutcome::kClosed);
  });
  while (queue.size() != 0) std::this_thread::yield();
  end = Block();
  queue.nudge();
  getter.join();
  EXPECT_EQ(queue.poll({kNow, &peer}), QueueOutcome::kClosed);
  EXPECT_EQ(queue.put(0, {}, {}, {kNow, &peer}), QueueOutcome::kClosed);
}

TEST_F(QueueTest, TheDeathOfAPeerIsItsEnd) {
  Queue queue = Queue::create();
  Queue tokens = Queue::create();
  Child peer([&] {
    const Block end = Block::allocate(1);
    const Token token{end.offset(), end.serial()};
    if (tokens.put(0, std::as_bytes(std::span(&token, 1)), {}, {kNow}) != QueueOutcome::kDone) {
      return 1;
    }
    for (;;) std::this_thread::sleep_for(1s);
  });
  Message message;
  ASSERT_EQ(tokens.get(message, {test_deadline()}), QueueOutcome::kDone);
  Token token;
  std::memcpy(&token, message.bytes().data(), sizeof token);
  EXPECT_EQ(queue.get(message, {kNow, &token}), QueueOutcome::kTimedOut);
  peer.kill();
  EXPECT_EQ(queue.get(message, {test_deadline(), &token}), QueueOutcome::kClosed);
}

TEST_F(QueueTest, TheDescriptorIsReadableWhileThereAreItems) {
  Queue queue = Queue::create();
  ASSERT_EQ(put(queue, "a"), QueueOutcome::kDone);
  const auto readable = [&] { return os::poll_one(queue.fileno(), POLLIN, kNow); };
  EXPECT_TRUE(readable());
  ASSERT_EQ(put(queue, "b"), QueueOutcome::kDone);
  get(queue);
  EXPECT_TRUE(readable());
  get(queue);
  EXPECT_FALSE(readable());
  Child child([&] { return put(queue, "c") == QueueOutcome::kDone ? 0 : 1; });
  EXPECT_TRUE(os::poll_one(queue.fileno(), POLLIN, test_deadline()));
  EXPECT_EQ(get(queue), "c");
  EXPECT_FALSE(readable());
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

TEST_F(QueueTest, ABlockThatIsNoQueueIsRefused) {
  Block block = Block::allocate(4096);
  std::memset(block.data(), 0, 4096);
  EXPECT_THROW(Queue(std::move(block)), Error);
  EXPECT_THROW(Queue(Block::allocate(1)), Error);
}

layout::QueueWords& words_of(const Queue& queue) {
  return *reinterpret_cast<layout::QueueWords*>(queue.block().data());
}

/// A queue of another process, as far as this handle knows it: it has read nothing yet.
Queue again(const Queue& queue) { return Queue(Block::acquire(queue.block().offset())); }

TEST_F(QueueTest, AHandleThatIsGoneLeavesItsPlaceAmongThePollers) {
  Queue queue = Queue::create();
  const int fd = queue.fileno();
  for (std::size_t i = 0; i < 2 * layout::kMaxPollers; ++i) again(queue).fileno();
  EXPECT_EQ(queue.fileno(), fd);
  ASSERT_EQ(put(queue, "a"), QueueOutcome::kDone);
  EXPECT_TRUE(os::poll_one(fd, POLLIN, kNow));
}

TEST_F(QueueTest, ARingThatIsNotItsOwnIsRefused) {
  const Queue queue = Queue::create();
  Queue other = Queue::create();
  ASSERT_EQ(put(other, std::string(10'000, 'x')), QueueOutcome::kDone);
  const Block block = Block::allocate(10'000);
  std::atomic<std::uint64_t>& word = words_of(queue).ring;
  const std::uint64_t ring = word;
  const std::uint64_t places[] = {0,
                                  ring + 64,
                                  ring + 1,  // twice its size
                                  (ring & ~std::uint64_t{63}) | 63,
                                  block.offset() | 8,
                                  words_of(other).ring.load(),
                                  queue.block().offset() | 8,
                                  std::uint64_t{1} << 62 | 8,
                                  UINT64_MAX};
  for (const std::uint64_t place : places) {
    word = place;
    Queue here = again(queue);
    EXPECT_THROW(static_cast<void>(put(here, "a")), Error) << place;
  }
  word = ring;
  Queue here = again(queue);
  ASSERT_EQ(put(here, "a"), QueueOutcome::kDone);
  for (const std::uint64_t place : places) {
    word = place;
    EXPECT_THROW(get(here), Error) << place;
  }
  word = ring;
  EXPECT_EQ(get(here), "a");
  EXPECT_EQ(get(other), std::string(10'000, 'x'));
}

TEST_F(QueueTest, AMessageOfItsOwnIsNoRing) {
  Queue queue = Queue::create();
  ASSERT_EQ(put(queue, std::string(10'000, 'x')), QueueOutcome::kDone);
  const std::uint64_t ring = words_of(queue).ring;
  const auto* record =
      reinterpret_cast<const layout::RecordHeader*>(heap_->at(ring & ~std::uint64_t{63}));
  words_of(queue).ring = record->block | 8;
  Queue here = again(queue);
  EXPECT_THROW(static_cast<void>(put(here, "a")), Error);
  words_of(queue).ring = ring;
  EXPECT_EQ(get(queue), std::string(10'000, 'x'));
}

TEST_F(QueueTest, ARecordThatLiesCostsItsMessageAtMost) {
  Queue queue = Queue::create();
  ASSERT_EQ(put(queue, std::string(10'000, 'x')), QueueOutcome::kDone);
  const Offset ring = words_of(queue).ring & ~std::uint64_t{63};
  auto* record = reinterpret_cast<layout::RecordHeader*>(heap_->at(ring));
  const layout::RecordHeader honest = *record;
  record->block = ring;
  EXPECT_THROW(get(queue), Error);
  *record = honest;
  record->bytes = 10'001;
  Message message;
  EXPECT_THROW(static_cast<void>(queue.get(message, {kNow})), Error);
  EXPECT_TRUE(message.bytes().empty());
  ASSERT_EQ(put(queue, "next"), QueueOutcome::kDone);
  EXPECT_EQ(get(queue), "next");
}

TEST_F(QueueTest, ARingThatItHadIsRefused) {
  Queue queue = Queue::create();
  Queue other = again(queue);
  ASSERT_EQ(put(other, "a"), QueueOutcome::kDone);
  const std::uint64_t first = words_of(queue).ring;
  while (words_of(queue).ring == first) {
    ASSERT_EQ(put(queue, std::string(4000, 'x')), QueueOutcome::kDone);
  }
  const std::uint64_t ring = words_of(queue).ring;
  words_of(queue).ring = first;
  EXPECT_THROW(get(other), Error);
  words_of(queue).ring = ring;
  EXPECT_EQ(get(other), "a");
}

TEST_F(QueueTest, ALieAboutASpareRingDoesNotOutliveItsWriter) {
  Queue queue = Queue::create({.max_bytes = 10});
  const Block block = Block::allocate(100);
  const Offset ring = words_of(queue).ring & ~std::uint64_t{63};
  for (const Offset lie : {block.offset(), ring, Offset{64}, Offset{1} << 62}) {
    ASSERT_EQ(put(queue, "a"), QueueOutcome::kDone);
    Child child([&] {
      words_of(queue).spare_ring = lie;
      words_of(queue).bytes = 0;
      return words_of(queue).lock.spin_lock() == sync::LockOutcome::kLocked ? 0 : 1;
    });
    ASSERT_EQ(child.join(), os::ProcessEnd{});
    ASSERT_EQ(put(queue, "b"), QueueOutcome::kDone);
    EXPECT_EQ(words_of(queue).spare_ring, 0u);
    EXPECT_EQ(words_of(queue).bytes, 2u);
    EXPECT_EQ(get(queue), "a");
    EXPECT_EQ(get(queue), "b");
  }
  EXPECT_TRUE(heap_->is_given(ring, queue.block().offset(), BlockKind::kData));
}

/// One process is killed at the nth pass of a named point, while it puts (or gets) numbered
/// messages; the numbers come out in order, without a duplicate, and at most one is missing.
class QueueDeath : public QueueTest, public ::testing::WithParamInterface<const char*> {};

std::string numbered(int number) {
  const std::size_t sizes[] = {10, 3000, 5000};  // inline, inline, a block
  return std::to_string(number) + std::string(sizes[number % 3], ' ');
}

TEST_P(QueueDeath, OfAProducerCostsAtMostItsMessage) {
  for (int nth = 1; nth <= 7; ++nth) {
    Queue queue = Queue::create();
    constexpr int kCount = 12;
    Child producer([&] {
      os::arm_fault_point(GetParam(), static_cast<std::uint64_t>(nth));
      for (int i = 0; i < kCount; ++i) {
        const Block named = Block::allocate(8);
        const Offset offset = named.offset();
        const std::string text = numbered(i);
        const auto blocks = i % 4 == 1 ? std::span(&offset, 1) : std::span<const Offset>();
        if (queue.put(1, std::as_bytes(std::span(text)), blocks, {test_deadline()}) !=
            QueueOutcome::kDone) {
          return 1;
        }
      }
      return 0;
    });
    const auto end = producer.join();
    ASSERT_TRUE(end && (end->signal == SIGKILL || *end == os::ProcessEnd{}));
    heap_->sweep();
    int expected = 0;
    for (std::string text; (text = get(queue, kNow)) != "…"; ++expected) {
      ASSERT_EQ(text, numbered(expected));
    }
    if (*end == os::ProcessEnd{}) {
      EXPECT_EQ(expected, kCount);
    }
    EXPECT_EQ(put(queue, "after", kNow), QueueOutcome::kDone);
    EXPECT_EQ(get(queue, kNow), "after");
    EXPECT_EQ(heap_->check(), std::vector<std::string>());
  }
}

TEST_P(QueueDeath, OfAConsumerCostsAtMostItsMessage) {
  for (int nth = 1; nth <= 7; ++nth) {
    Queue queue = Queue::create();
    Queue seen = Queue::create();
    constexpr int kCount = 12;
    for (int i = 0; i < kCount; ++i) ASSERT_EQ(put(queue, numbered(i)), QueueOutcome::kDone);
    Child consumer([&] {
      os::arm_fault_point(GetParam(), static_cast<std::uint64_t>(nth));
      for (int i = 0; i < kCount; ++i) {
        const int number = std::stoi(get(queue, kNow));
        os::arm_fault_point("");
        if (put(seen, std::to_string(number)) != QueueOutcome::kDone) return 1;
        os::arm_fault_point(GetParam(), static_cast<std::uint64_t>(std::max(1, nth - i)));
      }
      return 0;
    });
    const auto end = consumer.join();
    ASSERT_TRUE(end && (end->signal == SIGKILL || *end == os::ProcessEnd{}));
    heap_->sweep();
    int expected = 0;
    for (std::string text; (text = get(seen, kNow)) != "…"; ++expected) {
      ASSERT_EQ(text, std::to_string(expected));
    }
    const std::string next = get(queue, kNow);
    if (next != "…") {
      const int first = std::stoi(next);
      EXPECT_TRUE(first == expected || first == expected + 1) << first << " after " << expected;
      for (int i = first + 1; i < kCount; ++i) ASSERT_EQ(get(queue, kNow), numbered(i));
    } else {
      EXPECT_GE(expected, kCount - 1);
    }
    EXPECT_EQ(heap_->check(), std::vector<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Points, QueueDeath,
                         ::testing::Values("queue.put.block", "queue.put.written", "queue.put.told",
                                           "queue.put.counted", "queue.wake.before",
                                           "queue.ring.spare", "queue.ring.replaced",
                                           "queue.get.copied", "queue.get.block",
                                           "queue.get.counted", "heap.give.before",
                                           "heap.give.after", "heap.take.before", "heap.take.after",
                                           "heap.hold.before", "heap.hold.after"));

}  // namespace
}  // namespace shoal::ipc
