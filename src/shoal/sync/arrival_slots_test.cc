#include "shoal/sync/arrival_slots.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <thread>
#include <vector>

#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/gather.h"
#include "shoal/sync/spsc_indices.h"

namespace shoal::sync {
namespace {

using os::testing::Child;

constexpr std::uint32_t kSlots = 3;
constexpr std::uint32_t kBlocks = 4;

/// Plain memory, or a segment, that holds the words of an ArrivalSlots.
struct Words {
  std::atomic<std::uint64_t> cursor;
  os::FutexWord order[kBlocks];
  std::atomic<std::uint64_t> words[kBlocks * kSlots];

  ArrivalSlots slots() { return {&cursor, std::span(order), std::span(words), kSlots}; }
};

TEST(ArrivalSlots, PlacesAreClaimedInOrderAcrossBatches) {
  Words words{};
  ArrivalSlots slots = words.slots();
  slots.open(0, 2);
  slots.open(1, 1);
  for (std::uint32_t ticket = 0; ticket < 2 * kSlots; ++ticket) {
    const SlotPlace place = slots.claim(100 + ticket);
    EXPECT_EQ(place.sequence, ticket / kSlots);
    EXPECT_EQ(place.slot, ticket % kSlots);
    EXPECT_EQ(place.block, ticket < kSlots ? 2U : 1U);
    EXPECT_FALSE(slots.is_ready(place));
    EXPECT_EQ(slots.look(place.block, place.slot).claimer, 100 + ticket);
    slots.ready(place, 100 + ticket);
    EXPECT_TRUE(slots.is_ready(place));
  }
}

TEST(ArrivalSlots, AReusedBlockIsNotReadyForItsNewBatch) {
  Words words{};
  ArrivalSlots slots = words.slots();
  slots.open(0, 0);
  for (std::uint32_t i = 0; i < kSlots; ++i) slots.ready(slots.claim(i), i);
  slots.open(1, 0);
  EXPECT_FALSE(slots.is_ready({1, 0, 0}));
  const SlotPlace place = slots.claim(7);
  EXPECT_EQ(place.sequence, 1U);
  slots.ready(place, 7);
  EXPECT_TRUE(slots.is_ready({1, 0, 0}));
  EXPECT_FALSE(slots.is_ready({0, 0, 0}));
}

TEST(ArrivalSlots, SequencesWrap) {
  Words words{};
  ArrivalSlots slots = words.slots();
  const std::uint64_t last = 0xffff'ffff;
  slots.restart(last);
  slots.open(static_cast<std::uint32_t>(last), 0);
  slots.open(0, 1);
  for (std::uint32_t i = 0; i < kSlots; ++i) EXPECT_EQ(slots.claim(i).sequence, 0xffff'ffffU);
  const SlotPlace place = slots.claim(9);
  EXPECT_EQ(place.sequence, 0U);
  EXPECT_EQ(place.block, 1U);
}

TEST(ArrivalSlots, ARunIsNeighboursOfOneBatch) {
  Words words{};
  ArrivalSlots slots = words.slots();
  slots.open(0, 2);
  slots.open(1, 1);
  const auto expect = [&](const SlotPlace& place, std::uint32_t sequence, std::uint32_t slot,
                          std::uint32_t count) {
    EXPECT_EQ(place.sequence, sequence);
    EXPECT_EQ(place.slot, slot);
    EXPECT_EQ(place.count, count);
  };
  const SlotPlace first = slots.claim_run(10, 2);
  expect(first, 0, 0, 2);
  EXPECT_EQ(slots.look(2, 0).more, 1U);
  expect(slots.claim_run(20, 2), 0, 2, 1);  // where the batch ends
  expect(slots.claim_run(21, 3), 1, 0, 3);
  slots.ready(first, 10);
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    EXPECT_TRUE(slots.is_ready({0, 2, slot}));
    EXPECT_EQ(slots.look(2, slot).claimer, 10 + slot);
  }
  EXPECT_FALSE(slots.is_ready({0, 2, 2}));
}

TEST(ArrivalSlots, WhoComesLateToARunGoesBehindIt) {
  Words words{};
  ArrivalSlots slots = words.slots();
  slots.open(0, 0);
  slots.open(1, 1);
  const SlotPlace run = slots.claim_run(1, 2);
  words.cursor.store(0);  // as a claimer leaves it that stands still before it pushes on
  EXPECT_EQ(slots.claim(3).slot, 2U);
  slots.ready(run, 1);
  words.cursor.store(0);
  EXPECT_EQ(slots.claim(4).sequence, 1U);
}

TEST(ArrivalSlots, WhoComesLateToABatchThatIsOverGoesBehindIt) {
  Words words{};
  ArrivalSlots slots = words.slots();
  slots.open(0, 0);
  slots.ready(slots.claim_run(1, kSlots), 1);
  slots.open(1, 1);
  slots.open(2, 0);  // the block again, while the cursor still stands in its first batch
  words.cursor.store(0);
  const SlotPlace place = slots.claim(4);
  EXPECT_EQ(place.sequence, 1U);
  EXPECT_EQ(place.slot, 0U);
}

/// An owner and workers: every item that was handed out comes back once, and each batch is whole.
struct Exchange {
  static constexpr std::uint32_t kWorkers = 3;
  static constexpr std::uint32_t kCapacity = 8;  // items a worker may have, at most
  static constexpr std::uint32_t kBatches = 3000;
  static constexpr std::uint32_t kEnd = UINT32_MAX;

  Words words;
  Gather gathers[kBlocks];
  std::uint32_t rows[kBlocks * kSlots];
  Doorbell doors[kWorkers];
  SpscIndices inboxes[kWorkers];
  std::uint32_t items[kWorkers][kCapacity];

  void send(std::uint32_t worker, std::uint32_t item) {
    ASSERT_NE(inboxes[worker].writable(kCapacity), 0U);
    items[worker][inboxes[worker].write_index() % kCapacity] = item;
    inboxes[worker].publish(1);
    doors[worker].ring();
  }

  // All that there is at a time, in runs.
  void serve(std::uint32_t worker) {
    ArrivalSlots slots = words.slots();
    for (;;) {
      const std::uint32_t seen = doors[worker].generation();
      const std::uint32_t count = inboxes[worker].readable();
      if (count == 0) {
        static_cast<void>(doors[worker].park(seen, os::kNoDeadline));
        continue;
      }
      std::vector<std::uint32_t> taken;
      for (std::uint32_t i = 0; i < count; ++i) {
        taken.push_back(items[worker][(inboxes[worker].read_index() + i) % kCapacity]);
      }
      inboxes[worker].consume(count);
      const bool end = taken.back() == kEnd;
      if (end) taken.pop_back();
      for (std::uint32_t done = 0; done < taken.size();) {
        const SlotPlace place =
            slots.claim_run(worker, static_cast<std::uint32_t>(taken.size()) - done);
        for (std::uint32_t i = 0; i < place.count; ++i)
          rows[place.block * kSlots + place.slot + i] = taken[done + i];
        done += place.count;
        slots.ready(place, worker);
        gathers[place.block].arrive(place.sequence, place.count);
      }
      if (end) return;
    }
  }

  // Two items more than a batch are out at any time, so that batches overlap.
  void own() {
    ArrivalSlots slots = words.slots();
    std::uint32_t opened = 0;
    std::uint32_t sent = 0;
    const auto hand_out = [&] {
      for (; opened * kSlots <= sent; ++opened) {
        slots.open(opened, opened % kBlocks);
        gathers[opened % kBlocks].start(opened, kSlots);
      }
      send(sent % kWorkers, sent);
      ++sent;
    };
    while (sent < kSlots + 2) hand_out();
    std::vector<int> seen(kBatches * kSlots + kSlots + 2);
    for (std::uint32_t sequence = 0; sequence < kBatches; ++sequence) {
      const std::uint32_t block = sequence % kBlocks;
      while (gathers[block].park(os::kNoDeadline) != WaitOutcome::kReady) {
      }
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        ASSERT_TRUE(slots.is_ready({sequence, block, slot}));
        ++seen[rows[block * kSlots + slot]];
      }
      for (std::uint32_t i = 0; i < kSlots; ++i) hand_out();
    }
    for (std::uint32_t worker = 0; worker < kWorkers; ++worker) send(worker, kEnd);
    EXPECT_EQ(*std::max_element(seen.begin(), seen.end()), 1);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), kBatches * kSlots);
  }
};

TEST(ArrivalSlots, ThreadsExchangeEveryItemOnce) {
  auto exchange = std::make_unique<Exchange>();
  std::vector<std::thread> workers;
  for (std::uint32_t w = 0; w < Exchange::kWorkers; ++w) {
    workers.emplace_back([&exchange, w] { exchange->serve(w); });
  }
  exchange->own();
  for (std::thread& worker : workers) worker.join();
}

TEST(ArrivalSlots, ProcessesExchangeEveryItemOnce) {
  const shm::Arena arena = shm::Arena::create("exchange", sizeof(Exchange));
  auto* exchange = arena.at<Exchange>(0);
  std::vector<std::unique_ptr<Child>> workers;
  for (std::uint32_t w = 0; w < Exchange::kWorkers; ++w) {
    workers.push_back(std::make_unique<Child>([&arena, w] {
      const shm::Arena own = shm::Arena::attach(os::Fd(::dup(arena.fd())));
      own.at<Exchange>(0)->serve(w);
      return 0;
    }));
  }
  exchange->own();
  for (auto& worker : workers) EXPECT_EQ(worker->join().value().code, 0);
}

TEST(ArrivalSlots, ADeadClaimerIsNamedByItsPlaceAndHoldsUpNobody) {
  const shm::Arena arena = shm::Arena::create("claims", sizeof(Words));
  ArrivalSlots slots = arena.at<Words>(0)->slots();
  slots.open(0, 0);
  Child worker([&] {
    static_cast<void>(arena.at<Words>(0)->slots().claim(42));
    std::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(worker.join().value().signal, SIGKILL);
  const SlotPlace next = slots.claim(1);
  EXPECT_EQ(next.slot, 1U);
  const SlotWord left = slots.look(0, 0);
  EXPECT_EQ(left.claimer, 42U);
  EXPECT_EQ(left.state, SlotState::kClaimed);
}

TEST(ArrivalSlots, TheRestOfADeadClaimersRunIsFilledInAnyOrder) {
  const shm::Arena arena = shm::Arena::create("claims", sizeof(Words));
  ArrivalSlots slots = arena.at<Words>(0)->slots();
  slots.open(0, 0);
  slots.open(1, 1);
  Child worker([&] {
    ArrivalSlots own = arena.at<Words>(0)->slots();
    const SlotPlace run = own.claim_run(40, 3);
    own.ready({run.sequence, run.block, run.slot + 2}, 42);  // as ready() begins
    std::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(worker.join().value().signal, SIGKILL);
  EXPECT_EQ(slots.look(0, 0).claimer, 40U);
  EXPECT_EQ(slots.look(0, 0).more, 2U);
  EXPECT_TRUE(slots.is_ready({0, 0, 2}));
  slots.ready({0, 0, 0}, 40);
  EXPECT_EQ(slots.look(0, 0).more, 2U);  // so that nobody claims the middle
  arena.at<Words>(0)->cursor.store(0);
  EXPECT_EQ(slots.claim(1).sequence, 1U);
  slots.ready({0, 0, 1}, 41);
  EXPECT_TRUE(slots.is_ready({0, 0, 1}));
}

TEST(ArrivalSlots, AClaimAmongWordsThatOthersWroteOverEndsWithoutAPlace) {
  Words words{};
  ArrivalSlots slots = words.slots();
  slots.open(0, 0);
  const SlotWord lie{.sequence = 1000, .claimer = 5, .state = SlotState::kReady, .more = 0};
  for (auto& word : words.words) word.store(lie.packed());
  EXPECT_EQ(slots.claim_run(1, 2).count, 0U);
  for (const auto& word : words.words) EXPECT_EQ(word.load(), lie.packed());
}

TEST(SpscIndices, WritableAndReadableAddUpToTheCapacity) {
  SpscIndices indices{};
  EXPECT_EQ(indices.writable(4), 4U);
  indices.publish(3);
  EXPECT_EQ(indices.writable(4), 1U);
  EXPECT_EQ(indices.readable(), 3U);
  indices.consume(2);
  EXPECT_EQ(indices.writable(4), 3U);
  EXPECT_EQ(indices.readable(), 1U);
  EXPECT_EQ(indices.read_index(), 2U);
}

TEST(SpscIndices, ResetForgetsWhatWasNotConsumed) {
  SpscIndices indices{};
  indices.publish(3);
  indices.reset();
  EXPECT_EQ(indices.readable(), 0U);
  EXPECT_EQ(indices.writable(4), 4U);
}

}  // namespace
}  // namespace shoal::sync
