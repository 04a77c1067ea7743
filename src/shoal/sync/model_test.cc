// The orderings of doorbell, gather, chunks, ring, slots and versions under the Relacy model checker: it runs
// the very templates of the headers over its own atomics, through thousands of interleavings and
// every value that a relaxed load may return. A lost wake-up is a deadlock to it, a missing
// release/acquire pair a data race.
#include <gtest/gtest.h>

#include "shoal/sync/arrival_slots.h"
#include "shoal/sync/chunk_range.h"
#include "shoal/sync/doorbell.h"
#include "shoal/sync/gather.h"
#include "shoal/sync/sleepers.h"
#include "shoal/sync/spsc_indices.h"
#include "shoal/sync/versioned_slots.h"

// Last, since it redefines keywords.
#include "shoal/sync/testing/model.h"

namespace shoal::sync {
namespace {

using namespace testing;

/// One rings twice; two wait for each ring and read what was written before it.
template <Fault kFault>
struct RingModel : rl::test_suite<RingModel<kFault>, 3> {
  static constexpr int kRings = 2;
  BasicDoorbell<ModelAtomics<kFault>> door;
  rl::var<int> written[kRings + 1];

  void thread(unsigned index) {
    if (index == 0) {
      for (int ring = 1; ring <= kRings; ++ring) {
        written[ring]($) = ring;
        door.ring();
      }
      return;
    }
    for (std::uint32_t seen = 0; seen < kRings;) {
      if (door.park(seen, os::kNoDeadline) != WaitOutcome::kReady) continue;
      seen = door.generation();
      RL_ASSERT(written[seen]($) == static_cast<int>(seen));
    }
  }
};

/// A caller and two workers, two rounds: a command goes down, results come up, one arrival a round
/// is the last.
template <Fault kFault>
struct RoundModel : rl::test_suite<RoundModel<kFault>, 3> {
  static constexpr std::uint32_t kRounds = 2;
  static constexpr std::uint32_t kWorkers = 2;
  BasicDoorbell<ModelAtomics<kFault>> door;
  BasicGather<ModelAtomics<kFault>> gather;
  rl::var<int> command;
  rl::var<int> results[kWorkers];
  rl::atomic<int> last_arrivals[kRounds + 1];

  void before() {
    for (auto& count : last_arrivals) count($).store(0, rl::mo_relaxed);
  }

  void thread(unsigned index) {
    if (index == 0) {
      call();
    } else {
      work(index - 1);
    }
  }

  void call() {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      command($) = static_cast<int>(round);
      gather.start(round, kWorkers);
      RL_ASSERT(door.ring() == round);
      while (gather.park(os::kNoDeadline) != WaitOutcome::kReady) {
      }
      for (auto& result : results) RL_ASSERT(result($) == static_cast<int>(round) * 10);
    }
  }

  void work(unsigned worker) {
    for (std::uint32_t seen = 0; seen < kRounds; ++seen) {
      while (door.park(seen, os::kNoDeadline) != WaitOutcome::kReady) {
      }
      results[worker]($) = command($) * 10;
      if (gather.arrive(seen + 1)) last_arrivals[seen + 1]($).fetch_add(1, rl::mo_relaxed);
    }
  }

  void after() {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      RL_ASSERT(last_arrivals[round]($).load(rl::mo_relaxed) == 1);
    }
  }
};

/// A caller gives up round 1 at any moment and starts round 2 with one arrival; a straggler still
/// arrives for round 1.
template <Fault kFault>
struct GivenUpModel : rl::test_suite<GivenUpModel<kFault>, 3> {
  BasicDoorbell<ModelAtomics<kFault>> door;
  BasicGather<ModelAtomics<kFault>> gather;
  rl::var<int> result;

  void thread(unsigned index) {
    if (index == 0) {
      gather.start(1, 2);
      door.ring();
      static_cast<void>(gather.park(os::Deadline::min()));
      gather.start(2, 1);
      door.ring();
      while (gather.park(os::kNoDeadline) != WaitOutcome::kReady) {
      }
      RL_ASSERT(result($) == 2);
    } else if (index == 1) {
      while (door.park(0, os::kNoDeadline) != WaitOutcome::kReady) {
      }
      static_cast<void>(gather.arrive(1));
    } else {
      while (door.generation() < 2) {
        static_cast<void>(door.park(door.generation() & 1, os::kNoDeadline));
      }
      result($) = 2;
      RL_ASSERT(gather.arrive(2));
    }
  }
};

/// A producer writes more entries than the ring holds and rings; a consumer sleeps when there are
/// none.
template <Fault kFault>
struct RingBufferModel : rl::test_suite<RingBufferModel<kFault>, 2> {
  static constexpr std::uint32_t kCapacity = 2;
  static constexpr std::uint32_t kEntries = 4;
  BasicDoorbell<ModelAtomics<kFault>> door;
  BasicDoorbell<ModelAtomics<kFault>> room;
  BasicSpscIndices<ModelAtomics<kFault>> indices;
  rl::var<std::uint32_t> entries[kCapacity];

  void thread(unsigned index) {
    if (index == 0) {
      produce();
    } else {
      consume();
    }
  }

  void produce() {
    for (std::uint32_t entry = 0; entry < kEntries; ++entry) {
      for (;;) {
        const std::uint32_t seen = room.generation();
        if (indices.writable(kCapacity) != 0) break;
        static_cast<void>(room.park(seen, os::kNoDeadline));
      }
      entries[indices.write_index() % kCapacity]($) = entry;
      indices.publish(1);
      door.ring();
    }
  }

  void consume() {
    for (std::uint32_t next = 0; next < kEntries;) {
      const std::uint32_t seen = door.generation();
      const std::uint32_t count = indices.readable();
      if (count == 0) {
        static_cast<void>(door.park(seen, os::kNoDeadline));
        continue;
      }
      for (std::uint32_t i = 0; i < count; ++i) {
        RL_ASSERT(entries[(indices.read_index() + i) % kCapacity]($) == next++);
      }
      indices.consume(count);
      room.ring();
    }
  }
};

/// Batches of `kSlots` results in arrival order: an owner hands out work to two workers, waits for
/// each batch, reads it, reuses its block. The workers are given `kFirst` items each, then what the
/// first batches give back; each brings the results of all that it has at a time in runs.
template <Fault kFault, std::uint32_t kSlots, std::uint32_t kFirst = 1>
struct ArrivalModel : rl::test_suite<ArrivalModel<kFault, kSlots, kFirst>, 3> {
  using Atomics = ModelAtomics<kFault>;
  static constexpr std::uint32_t kWorkers = 2;
  static constexpr std::uint32_t kBlocks = kWorkers * kFirst / kSlots + 1;
  static constexpr std::uint32_t kTickets = kFirst == 1 ? 4 : 6;
  static constexpr std::uint32_t kNames = 8;  // worker w claims as w * kNames and its next ones
  static constexpr int kEnd = -1;

  BasicDoorbell<Atomics> doors[kWorkers];
  BasicSpscIndices<Atomics> inboxes[kWorkers];
  rl::var<int> work[kWorkers][kTickets + 1];
  BasicGather<Atomics> gathers[kBlocks];
  ModelWord<kFault, std::uint64_t> cursor;
  ModelWord<kFault> order[4];
  ModelWord<kFault, std::uint64_t> words[kBlocks * kSlots];
  rl::var<int> rows[kBlocks * kSlots];
  int sent[kWorkers];

  BasicArrivalSlots<Atomics> slots() {
    return {&cursor, std::span(order), std::span(words), kSlots};
  }

  void before() {
    for (auto& count : sent) count = 0;
  }

  void thread(unsigned index) {
    if (index == 0) {
      own();
    } else {
      serve(index - 1);
    }
  }

  void send(std::uint32_t worker, int item) {
    work[worker][inboxes[worker].write_index()]($) = item;
    inboxes[worker].publish(1);
    doors[worker].ring();
  }

  void open(std::uint32_t sequence) {
    slots().open(sequence, sequence % kBlocks);
    gathers[sequence % kBlocks].start(sequence, kSlots);
  }

  void own() {
    std::uint32_t opened = 0;
    std::uint32_t tickets = 0;
    const auto hand_out = [&](std::uint32_t worker) {
      for (; opened * kSlots <= tickets; ++opened) open(opened);
      ++tickets;
      send(worker, ++sent[worker]);
    };
    for (std::uint32_t worker = 0; worker < kWorkers; ++worker) {
      for (std::uint32_t i = 0; i < kFirst; ++i) hand_out(worker);
    }
    int got[kWorkers] = {0, 0};
    for (std::uint32_t sequence = 0; sequence < kTickets / kSlots; ++sequence) {
      const std::uint32_t block = sequence % kBlocks;
      while (gathers[block].park(os::kNoDeadline) != WaitOutcome::kReady) {
      }
      std::uint32_t back[kSlots];
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        RL_ASSERT(slots().is_ready({sequence, block, slot}));
        const std::uint32_t worker = slots().look(block, slot).claimer / kNames;
        RL_ASSERT(rows[block * kSlots + slot]($) == ++got[worker]);
        back[slot] = worker;
      }
      if (tickets == kTickets) continue;
      for (const std::uint32_t worker : back) {
        if (tickets < kTickets) hand_out(worker);
      }
    }
    for (std::uint32_t worker = 0; worker < kWorkers; ++worker) send(worker, kEnd);
  }

  void serve(std::uint32_t worker) {
    for (int done = 0;;) {
      const std::uint32_t seen = doors[worker].generation();
      std::uint32_t count = inboxes[worker].readable();
      if (count == 0) {
        static_cast<void>(doors[worker].park(seen, os::kNoDeadline));
        continue;
      }
      const std::uint32_t begin = inboxes[worker].read_index();
      const bool end = work[worker][begin + count - 1]($) == kEnd;
      if (end) --count;
      for (std::uint32_t i = 0; i < count; ++i) {
        RL_ASSERT(work[worker][begin + i]($) == done + static_cast<int>(i) + 1);
      }
      inboxes[worker].consume(count);
      while (count > 0) {
        const SlotPlace place = slots().claim_run(worker * kNames, count);
        for (std::uint32_t i = 0; i < place.count; ++i) {
          rows[place.block * kSlots + place.slot + i]($) = ++done;
        }
        slots().ready(place, worker * kNames);
        gathers[place.block].arrive(place.sequence, place.count);
        count -= place.count;
      }
      if (end) return;
    }
  }
};

/// Two rounds over two ranges of chunks: the caller and two who may come at any time, even between
/// rounds, take from both ranges; the caller reads what became of every chunk.
template <Fault kFault>
struct ChunkModel : rl::test_suite<ChunkModel<kFault>, 3> {
  static constexpr int kChunks = 3;
  BasicChunkRange<ModelAtomics<kFault>> ranges[2];
  BasicGather<ModelAtomics<kFault>> gather;
  rl::var<int> round;
  rl::var<int> results[kChunks];

  void thread(unsigned index) {
    if (index != 0) {
      take_part(index % 2);
      take_part(0);
      return;
    }
    for (int number = 1; number <= 2; ++number) {
      round($) = number;
      gather.start(static_cast<std::uint32_t>(number), kChunks);
      ranges[0].open(0, 1);
      ranges[1].open(1, kChunks);
      take_part(0);
      while (gather.left() != 0 && gather.park(os::kNoDeadline) != WaitOutcome::kReady) {
      }
      for (auto& result : results) RL_ASSERT(result($) == number);
    }
  }

  void take_part(unsigned first) {
    std::uint32_t done = 0;
    int number = 0;
    for (const unsigned at : {first, 1 - first}) {
      for (int chunk = 0; (chunk = ranges[at].take()) >= 0; ++done) {
        number = round($);
        results[chunk]($) = number;
      }
    }
    if (done > 0) gather.arrive(static_cast<std::uint32_t>(number), done);
  }
};

/// Two items are brought one by one for two who sleep until there is one. With a third who gives up
/// at any moment, and calls another if there is one that he was called for.
template <Fault kFault, bool kOneGivesUp>
struct SleepersModel : rl::test_suite<SleepersModel<kFault, kOneGivesUp>, kOneGivesUp ? 4 : 3> {
  using Bell = BasicSleepers<ModelAtomics<kFault>>;
  Bell bell;
  rl::mutex lock;
  rl::var<int> items;

  void before() { items($) = 0; }

  void thread(unsigned index) {
    if (index == 0) {
      for (int i = 0; i < 2; ++i) bring();
    } else if (index < 3) {
      take();
    } else {
      give_up();
    }
  }

  void bring() {
    lock.lock($);
    items($) = items($) + 1;
    const auto whom = bell.call_one();
    lock.unlock($);
    bell.wake(whom);
  }

  void take() {
    for (;;) {
      lock.lock($);
      if (items($) > 0) {
        items($) = items($) - 1;
        lock.unlock($);
        return;
      }
      const std::uint32_t ticket = bell.enlist();
      lock.unlock($);
      static_cast<void>(bell.sleep(ticket, os::kNoDeadline));
    }
  }

  void give_up() {
    lock.lock($);
    const std::uint32_t ticket = bell.enlist();
    lock.unlock($);
    const bool woken = bell.sleep(ticket, os::Deadline::min()) == WaitOutcome::kReady;
    lock.lock($);
    if (!woken) bell.leave(ticket);
    const auto whom = items($) > 0 ? bell.call_one() : Bell::Wake::kNobody;
    lock.unlock($);
    bell.wake(whom);
  }
};

/// One writes two words three times into two slots, so that it comes back to a slot that is being
/// read; two read.
template <Fault kFault>
struct VersionsModel : rl::test_suite<VersionsModel<kFault>, 3> {
  static constexpr std::uint64_t kVersions = 3;
  static constexpr std::size_t kSlots = 2;
  using Slots = BasicVersionedSlots<ModelAtomics<kFault>>;
  using Value = std::uint64_t[2];
  typename ModelAtomics<kFault>::Word64 words[Slots::words_needed(sizeof(Value), kSlots)];
  rl::var<std::uint64_t> beside[kVersions + 1];

  void thread(unsigned index) {
    Slots slots(words, sizeof(Value), kSlots);
    if (index == 0) {
      for (std::uint64_t version = 1; version <= kVersions; ++version) {
        beside[version]($) = version;
        const Value value = {version, version};
        RL_ASSERT(slots.write(reinterpret_cast<const std::byte*>(value)) == version);
      }
      return;
    }
    Value value = {0, 0};
    const std::uint64_t version = slots.read(reinterpret_cast<std::byte*>(value));
    RL_ASSERT(value[0] == version && value[1] == version);
    if (version != 0) RL_ASSERT(beside[version]($) == version);
  }
};

TEST(Model, EveryRingEndsEveryWaitAndPublishes) {
  expect_clean<RingModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<RingModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

TEST(Model, EveryRoundIsGatheredAndPublishes) {
  expect_clean<RoundModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<RoundModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

// Random only: Relacy's exhaustive scheduler loses threads that wait with a timeout.
TEST(Model, AStragglerDoesNotCompleteTheNextRound) {
  expect_clean<GivenUpModel<Fault::kNone>>(rl::random_scheduler_type);
}

TEST(Model, EveryEntryOfARingIsReadOnceAndWhole) {
  expect_clean<RingBufferModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<RingBufferModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

TEST(Model, EveryResultHasAPlaceOfItsOwnInArrivalOrder) {
  expect_clean<ArrivalModel<Fault::kNone, 1>>(rl::random_scheduler_type);
  expect_clean<ArrivalModel<Fault::kNone, 2>>(rl::random_scheduler_type);
  expect_clean<ArrivalModel<Fault::kNone, 2, 2>>(rl::random_scheduler_type);
  expect_clean<ArrivalModel<Fault::kNone, 3, 3>>(rl::random_scheduler_type);
}

TEST(Model, EveryChunkIsTakenOnceAndPublishes) {
  expect_clean<ChunkModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<ChunkModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

TEST(Model, EveryItemFindsASleeper) {
  expect_clean<SleepersModel<Fault::kNone, false>>(rl::random_scheduler_type);
  expect_clean<SleepersModel<Fault::kNone, false>>(rl::fair_context_bound_scheduler_type);
  expect_clean<SleepersModel<Fault::kNone, true>>(rl::random_scheduler_type);
}

TEST(Model, EveryVersionThatIsReadIsWhole) {
  expect_clean<VersionsModel<Fault::kNone>>(rl::random_scheduler_type);
}

TEST(Model, ALostWakeUpIsNoticed) {
  EXPECT_EQ((result_of<SleepersModel<Fault::kNoWake, false>>()), rl::test_result_deadlock);
  EXPECT_EQ(result_of<RingModel<Fault::kNoWake>>(), rl::test_result_deadlock);
  EXPECT_EQ(result_of<RoundModel<Fault::kNoWake>>(), rl::test_result_deadlock);
  EXPECT_EQ((result_of<ArrivalModel<Fault::kNoWake, 2>>()), rl::test_result_deadlock);
}

TEST(Model, AMissingOrderIsNoticed) {
  EXPECT_EQ(result_of<RingModel<Fault::kRelaxedOrders>>(), rl::test_result_data_race);
  EXPECT_EQ(result_of<RoundModel<Fault::kRelaxedOrders>>(), rl::test_result_data_race);
  EXPECT_EQ(result_of<ChunkModel<Fault::kRelaxedOrders>>(), rl::test_result_data_race);
  EXPECT_EQ(result_of<RingBufferModel<Fault::kRelaxedOrders>>(), rl::test_result_data_race);
  EXPECT_NE((result_of<ArrivalModel<Fault::kRelaxedOrders, 1>>()), rl::test_result_success);
  EXPECT_NE(result_of<VersionsModel<Fault::kRelaxedOrders>>(), rl::test_result_success);
}

}  // namespace
}  // namespace shoal::sync
