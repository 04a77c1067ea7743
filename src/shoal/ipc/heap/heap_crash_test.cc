// kill -9 at every named point of the heap's calls, one after the other, and at random moments:
// what the dead one held comes back, and the accounts balance. SHOAL_CRASH_ROUNDS=100 plays 100
// programs instead of one (some hundred kills each).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "shoal/ipc/heap/block.h"
#include "shoal/os/fault_point.h"
#include "shoal/os/testing/child.h"

namespace shoal::ipc {
namespace {

using os::testing::Child;
using os::testing::test_deadline;
using testing::IsEmpty;

unsigned rounds() {
  const char* text = std::getenv("SHOAL_CRASH_ROUNDS");
  return text == nullptr ? 1U : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

std::size_t any_size(std::mt19937& dice) { return dice() % (std::size_t{1} << (4 + dice() % 15)); }

/// A message with some blocks goes into the queue; sometimes one comes out again.
void pass_message(Heap& heap, Offset queue, std::mt19937& dice) {
  const Block message = Block::allocate(any_size(dice) / 16, BlockKind::kMessage);
  std::vector<Block> named;
  std::vector<Offset> offsets;
  for (unsigned i = 0; i < dice() % 9; ++i) {
    named.push_back(Block::allocate(any_size(dice)));
    offsets.push_back(named.back().offset());
  }
  heap.hold(message.offset(), offsets);
  const Write word{queue, message.offset()};
  Block given(message);
  heap.give(given.detach(), queue, {&word, 1});
  named.clear();
  if (dice() % 2 == 0) return;
  heap.take(message.offset(), queue);
  const Block taken = Block::adopt(Heap::here(), message.offset());
  if (!offsets.empty()) const Block again = Block::acquire(offsets.front());
}

/// Forks a child that uses what it inherited; it may be killed at a point, too.
void have_child(std::mt19937& dice) {
  const Block kept = Block::allocate(any_size(dice));
  const pid_t pid = ::fork();
  if (pid == 0) {
    kept.data()[0] = std::byte{1};
    const Block own = Block::allocate(any_size(dice));
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
}

/// A child dies with blocks, and this process sweeps.
void sweep_after_child(Heap& heap, std::mt19937& dice) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    os::arm_fault_point("");
    for (int i = 0; i < 10; ++i) static_cast<void>(heap.allocate(any_size(dice)));
    ::_exit(0);
  }
  ::waitpid(pid, nullptr, 0);
  heap.sweep();
}

/// What the process does that is killed.
void play(unsigned seed, Offset queue) {
  Heap& heap = *Heap::here();
  std::mt19937 dice(seed);
  std::vector<Block> blocks;
  for (int turn = 0; turn < 12; ++turn) {
    for (int i = 0; i < 4; ++i) blocks.push_back(Block::allocate(any_size(dice)));
    blocks.push_back(Block::allocate((1 << 20) + any_size(dice)));
    pass_message(heap, queue, dice);
    while (blocks.size() > 8) blocks.erase(blocks.begin() + dice() % blocks.size());
    if (turn == 4) have_child(dice);
    if (turn == 6) sweep_after_child(heap, dice);
    if (turn % 5 == 4) {
      EXPECT_THROW(heap.allocate(heap.stats().bytes / 2), OutOfMemory);  // which empties the cache
    }
  }
}

class HeapCrash : public testing::Test {
 protected:
  /// Until the processes that the dead ones had started have ended, too.
  void expect_balance(const HeapStats& before) {
    Heap& heap = *Heap::here();
    const auto deadline = test_deadline();
    for (heap.sweep(); heap.stats().processes > before.processes; heap.sweep()) {
      ASSERT_LT(os::Clock::now(), deadline);
      std::this_thread::yield();
    }
    ASSERT_THAT(heap.check(), IsEmpty());
    const HeapStats after = heap.stats();
    ASSERT_EQ(after.blocks, before.blocks);
    ASSERT_EQ(after.references, before.references);
    ASSERT_EQ(after.block_bytes, before.block_bytes);
  }
};

TEST_F(HeapCrash, AtEveryNamedPoint) {
  const HeapStats before = Heap::here()->stats();
  std::uint64_t kills = 0;
  for (unsigned seed = 1; seed <= rounds(); ++seed) {
    bool killed = true;
    for (std::uint64_t nth = 1; killed; ++nth) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", point " << nth);
      {
        const Block queue = Block::allocate(64, BlockKind::kQueue);
        Child child([&] {
          os::arm_fault_point("*", nth);
          play(seed, queue.offset());
          return 0;
        });
        const auto end = child.join();
        ASSERT_TRUE(end.has_value());
        killed = end->signal == SIGKILL;
        ASSERT_TRUE(killed || *end == os::ProcessEnd{}) << end->code << " " << end->signal;
        kills += killed;
        ASSERT_THAT(Heap::here()->check(), IsEmpty());  // before the sweep, too
      }
      expect_balance(before);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(kills, 200U * rounds());
  RecordProperty("kills", static_cast<int>(kills));
}

TEST_F(HeapCrash, AtRandomMomentsAmongOthers) {
  const HeapStats before = Heap::here()->stats();
  std::mt19937 dice(7);
  for (unsigned round = 0; round < 4 * rounds(); ++round) {
    {
      const Block queue = Block::allocate(64, BlockKind::kQueue);
      std::vector<std::unique_ptr<Child>> children;
      for (unsigned i = 0; i < 3; ++i) {
        children.push_back(std::make_unique<Child>([&, i]() -> int {
          for (unsigned seed = i;; seed += 3) play(seed, queue.offset());
        }));
      }
      for (unsigned kill = 0; kill < 6; ++kill) {
        play(1000 + kill, queue.offset());
        const unsigned victim = dice() % 3;
        children[victim]->kill();
        Heap::here()->sweep();
        children[victim] = std::make_unique<Child>([&, kill]() -> int {
          for (unsigned seed = 100 * kill;; ++seed) play(seed, queue.offset());
        });
      }
    }
    expect_balance(before);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace shoal::ipc
