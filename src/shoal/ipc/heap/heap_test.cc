#include "shoal/ipc/heap/heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <random>
#include <thread>

#include "shoal/ipc/heap/block.h"
#include "shoal/os/eventfd.h"
#include "shoal/os/testing/child.h"

namespace shoal::ipc {
namespace {

using os::testing::Child;
using testing::IsEmpty;

Heap& heap() { return *Heap::here(); }

/// What the process had before a test is what it has after it.
class HeapTest : public testing::Test {
 protected:
  void SetUp() override { before_ = heap().stats(); }
  void TearDown() override {
    heap().sweep();
    EXPECT_THAT(heap().check(), IsEmpty());
    EXPECT_EQ(heap().stats().blocks, before_.blocks);
    EXPECT_EQ(heap().stats().references, before_.references);
    EXPECT_EQ(heap().stats().processes, before_.processes);
  }

  HeapStats before_;
};

TEST_F(HeapTest, ABlockIsAlignedAndHasItsBytes) {
  for (const std::size_t bytes :
       {0U, 1U, 64U, 65U, 1000U, 4096U, 32704U, 32705U, 65536U, 1U << 20, 5000000U}) {
    const Offset block = heap().allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(heap().at(block)) % 64, 0U);
    EXPECT_EQ(heap().size_of(block), bytes);
    EXPECT_EQ(heap().offset_of(heap().at(block)), block);
    EXPECT_TRUE(heap().contains(heap().at(block)));
    std::memset(heap().at(block), 0x5a, bytes);
    EXPECT_THAT(heap().check(), IsEmpty());
    heap().release(block);
  }
}

TEST_F(HeapTest, ABlockLivesWhileItIsHeld) {
  const Offset block = heap().allocate(100);
  const std::uint64_t serial = heap().serial_of(block);
  heap().acquire(block, serial);
  heap().release(block);
  heap().acquire(block);
  heap().release(block);
  heap().release(block);
  EXPECT_THROW(heap().acquire(block, serial), Error);
  EXPECT_THROW(heap().acquire(block), Error);
  EXPECT_THROW(heap().acquire(12345), Error);
  EXPECT_THROW(heap().acquire(0), Error);
  EXPECT_THROW(heap().acquire(~std::uint64_t{63}), Error);
}

TEST_F(HeapTest, ASerialTellsABlockFromItsSuccessor) {
  const Offset block = heap().allocate(100);
  const std::uint64_t serial = heap().serial_of(block);
  heap().release(block);
  const Offset next = heap().allocate(100);
  ASSERT_EQ(next, block);
  EXPECT_NE(heap().serial_of(next), serial);
  EXPECT_THROW(heap().acquire(block, serial), Error);
  heap().release(next);
}

TEST_F(HeapTest, AMessageHoldsWhatIsNamedInIt) {
  const Offset queue = heap().allocate(64, BlockKind::kQueue);
  const Offset message = heap().allocate(64, BlockKind::kMessage);
  std::vector<Offset> named;
  for (int i = 0; i < 20; ++i) named.push_back(heap().allocate(1000));
  const std::uint64_t serial = heap().serial_of(named[7]);
  heap().hold(message, named);
  for (const Offset block : named) heap().release(block);
  const Write word{queue + 8, 42};
  heap().give(message, queue, {&word, 1});
  EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(heap().at(queue) + 8), 42U);
  EXPECT_EQ(heap().stats().blocks, before_.blocks + 22);
  heap().take(message, queue);
  EXPECT_THROW(heap().take(message, queue), InvalidState);
  heap().acquire(named[7], serial);
  heap().release(message);
  EXPECT_EQ(heap().stats().blocks, before_.blocks + 2);
  heap().release(named[7]);
  heap().release(queue);
}

TEST_F(HeapTest, AFreedQueueFreesItsMessages) {
  const Offset queue = heap().allocate(64, BlockKind::kQueue);
  for (int i = 0; i < 100; ++i) {
    const Offset message = heap().allocate(64, BlockKind::kMessage);
    const Offset named = heap().allocate(100'000);
    heap().hold(message, {&named, 1});
    heap().give(message, queue);
    heap().release(named);
  }
  EXPECT_THAT(heap().check(), IsEmpty());
  heap().release(queue);
}

TEST_F(HeapTest, WhoKeepsAReferenceMayGiveAnother) {
  const Offset queue = heap().allocate(64, BlockKind::kQueue);
  const Offset block = heap().allocate(64);
  heap().acquire(block);
  heap().give(block, queue);
  EXPECT_THROW(heap().give(block, queue), InvalidState);
  heap().take(block, queue);
  heap().release(block);
  heap().release(block);
  heap().release(queue);
}

TEST_F(HeapTest, RandomSizesBalance) {
  std::mt19937 dice(1);
  std::vector<Offset> blocks;
  for (int turn = 0; turn < 20'000; ++turn) {
    if (blocks.empty() || dice() % 100 < 52) {
      const std::size_t bytes = std::size_t{1} << (dice() % 20);
      blocks.push_back(heap().allocate(bytes + dice() % bytes));
    } else {
      std::swap(blocks[dice() % blocks.size()], blocks.back());
      heap().release(blocks.back());
      blocks.pop_back();
    }
    if (turn % 1000 == 0) {
      ASSERT_THAT(heap().check(), IsEmpty());
    }
  }
  for (const Offset block : blocks) heap().release(block);
}

TEST_F(HeapTest, FreedPagesAreUsedAgainAndGoBack) {
  const Offset large = heap().allocate(16 << 20);
  heap().release(large);
  const std::uint64_t cached = heap().stats().cached_bytes;
  EXPECT_GE(cached, 16U << 20);
  const Offset again = heap().allocate(16 << 20);
  EXPECT_EQ(again, large);
  heap().release(again);
}

TEST_F(HeapTest, TooMuchIsAnErrorThatNamesTheSizes) {
  try {
    heap().allocate(std::size_t{1} << 62);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("4611686018427387904"));
  }
  EXPECT_THROW(heap().allocate(heap().stats().bytes / 2), OutOfMemory);
}

TEST_F(HeapTest, AChildHoldsWhatItsParentHeld) {
  const Block block = Block::allocate(100);
  std::strcpy(reinterpret_cast<char*>(block.data()), "hello");
  const ProcessSlot parent = heap().self();
  Child child([&] {
    if (heap().self() == parent) return 1;
    std::strcat(reinterpret_cast<char*>(block.data()), " back");
    const Block own = Block::allocate(1000);
    return heap().check().empty() ? 0 : 2;
  });
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_STREQ(reinterpret_cast<char*>(block.data()), "hello back");
}

TEST_F(HeapTest, AChildsReferencesOutliveItsParents) {
  os::EventFd go;
  auto block = std::make_unique<Block>(Block::allocate(3000));
  const Offset offset = block->offset();
  std::memset(block->data(), 7, block->size());
  Child child([&] {
    while (!go.clear()) ::usleep(100);
    return heap().at(offset)[2999] == std::byte{7} ? 0 : 1;
  });
  block.reset();
  EXPECT_EQ(heap().stats().blocks, before_.blocks + 1);
  go.notify();
  EXPECT_EQ(child.join(), os::ProcessEnd{});
}

TEST_F(HeapTest, WhatAKilledProcessHeldComesBack) {
  os::EventFd ready;
  Child child([&] {
    std::vector<Block> blocks;
    for (int i = 0; i < 1000; ++i) blocks.push_back(Block::allocate(i * 100));
    ready.notify();
    for (;;) ::pause();
    return 0;
  });
  while (!ready.clear()) ::usleep(100);
  EXPECT_EQ(heap().stats().blocks, before_.blocks + 1000);
  child.kill();
  EXPECT_EQ(heap().sweep(), 1U);
}

TEST_F(HeapTest, AnotherProcessAttachesByDescriptor) {
  const Block block = Block::allocate(100);
  block.data()[0] = std::byte{9};
  const Offset offset = block.offset();
  EXPECT_EQ(Heap::attach(os::Fd::duplicate(heap().fd())).get(), &heap());
  EXPECT_THROW(Heap::create(), InvalidState);
  const auto other = HeapSegment::attach(os::Fd::duplicate(heap().fd()));
  EXPECT_NE(other.base(), heap().base());
  EXPECT_EQ(other.base()[offset], std::byte{9});
}

TEST_F(HeapTest, ForeignDescriptorsAreRefused) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const os::Fd writer(ends[1]);
  EXPECT_THROW(Heap::attach(os::Fd(ends[0])), Error);
  EXPECT_THROW(Heap::attach(os::Memfd::create("small", 4096).release()), Error);
  EXPECT_THROW(Heap::attach(os::Memfd::create("other", 16 << 20).release()), Error);
}

TEST_F(HeapTest, ThreadsAndProcessesShareIt) {
  const auto work = [](unsigned seed) {
    std::mt19937 dice(seed);
    std::vector<Block> blocks;
    for (int turn = 0; turn < 3000; ++turn) {
      if (blocks.size() < 50) {
        blocks.push_back(Block::allocate(dice() % 70'000));
        std::memset(blocks.back().data(), static_cast<int>(seed), blocks.back().size());
      } else {
        for (std::size_t i = 0; i < blocks.back().size(); ++i) {
          if (blocks.back().data()[i] != static_cast<std::byte>(seed)) return 1;
        }
        blocks.erase(blocks.begin() + dice() % blocks.size());
      }
    }
    return 0;
  };
  Child first([&] { return work(1); });
  Child second([&] { return work(2); });
  std::thread thread([&] { EXPECT_EQ(work(3), 0); });
  EXPECT_EQ(work(4), 0);
  thread.join();
  EXPECT_EQ(first.join(), os::ProcessEnd{});
  EXPECT_EQ(second.join(), os::ProcessEnd{});
}

}  // namespace
}  // namespace shoal::ipc
