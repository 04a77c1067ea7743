// The orderings of rings, tree and gate under the Relacy model checker, as in model_test.cc.
#include <gtest/gtest.h>

#include "shoal/sync/event_ring.h"
#include "shoal/sync/gate.h"
#include "shoal/sync/ring_column.h"
#include "shoal/sync/sum_tree.h"

// Last, since it redefines keywords.
#include "shoal/sync/testing/model.h"

namespace shoal::sync {
namespace {

using namespace testing;

/// One appends rows of two words to three places, so that it comes back to a row that is being read;
/// two read, the newest row and the oldest.
template <Fault kFault>
struct RowsModel : rl::test_suite<RowsModel<kFault>, 3> {
  static constexpr std::uint64_t kRows = 4;
  static constexpr RingColumnShape kShape{.rows = 3, .front = 8, .back = 8};
  using Column = BasicRingColumn<ModelAtomics<kFault>>;
  typename ModelAtomics<kFault>::Word64 words[kShape.words_needed()];
  rl::var<std::uint64_t> beside[kRows + 1];

  static const std::byte* bytes_of(const std::uint64_t& value) {
    return reinterpret_cast<const std::byte*>(&value);
  }

  void thread(unsigned index) {
    Column column(words, kShape);
    if (index == 0) {
      const std::uint64_t first = 100;
      column.start(bytes_of(first));
      for (std::uint64_t row = 0; row < kRows; ++row) {
        const std::uint64_t next = 100 + row + 1;
        beside[row]($) = row;
        column.finish(bytes_of(row), bytes_of(next));
      }
      return;
    }
    const std::uint64_t head = column.head();
    if (head == 0) return;
    const std::uint64_t row = index == 1 ? head - 1 : column.oldest();
    if (row >= head) return;
    std::uint64_t front = 0, back = 0, next = 0;
    column.copy_front(row, reinterpret_cast<std::byte*>(&front));
    column.copy_back(row, reinterpret_cast<std::byte*>(&back));
    column.copy_front(row + 1, reinterpret_cast<std::byte*>(&next));
    if (column.is_whole(row)) RL_ASSERT(front == 100 + row && back == row && next == 101 + row);
    RL_ASSERT(beside[row]($) == row);
  }
};

/// Two change weights, of one place and of two, while a third finds the tree short and rebuilds it.
template <Fault kFault>
struct RepairModel : rl::test_suite<RepairModel<kFault>, 3> {
  using Tree = BasicSumTree<ModelAtomics<kFault>, 3, 0>;
  static constexpr std::size_t kLeaves = 2;
  typename ModelAtomics<kFault>::Word64 words[Tree::words_needed(kLeaves)];
  BasicGate<ModelAtomics<kFault>, 2> gate;

  void before() {
    words[1].store(5,
                   std::memory_order_relaxed);  // as if somebody had died before it took this off
  }

  void thread(unsigned index) {
    Tree tree(words, kLeaves);
    if (index < 2) {
      while (!gate.try_enter(index)) rl::yield(1, $);
      tree.assign(index, 0, index + 1);
      static_cast<void>(tree.update(1, 0, 3));
      gate.leave(index);
      return;
    }
    gate.close();
    for (std::size_t member = 0; member < 2; ++member)
      while (gate.is_inside(member)) rl::yield(1, $);
    tree.rebuild();
    RL_ASSERT(tree.is_consistent());
    gate.open();
  }

  void after() { RL_ASSERT(Tree(words, kLeaves).is_consistent()); }
};

/// Two change the same weights without a gate; no sum is lost.
template <Fault kFault>
struct WeightsModel : rl::test_suite<WeightsModel<kFault>, 2> {
  using Tree = BasicSumTree<ModelAtomics<kFault>, 3, 0>;
  static constexpr std::size_t kLeaves = 2;
  typename ModelAtomics<kFault>::Word64 words[Tree::words_needed(kLeaves)];

  void thread(unsigned index) {
    Tree tree(words, kLeaves);
    tree.assign(0, 0, index + 1);
    static_cast<void>(tree.update(0, 0, 4 - index));
    tree.raise(index + 1);
  }

  void after() {
    Tree tree(words, kLeaves);
    RL_ASSERT(tree.is_consistent());
    RL_ASSERT(tree.greatest() == 2);
  }
};

/// Two write two records each to two slots, so that they meet in one; a third reads.
template <Fault kFault>
struct EventsModel : rl::test_suite<EventsModel<kFault>, 3> {
  using Ring = BasicEventRing<ModelAtomics<kFault>>;
  static constexpr std::size_t kSlots = 2;
  static constexpr std::uint64_t kEach = 2;
  typename ModelAtomics<kFault>::Word64 next;
  typename ModelAtomics<kFault>::Word64 words[kSlots * Ring::kSlotWords];

  void thread(unsigned index) {
    Ring ring(&next, words, kSlots);
    if (index < 2) {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const std::uint64_t which = 10 * (index + 1) + i;
        ring.push({which, 100 + which, 1000 + which});
      }
      return;
    }
    for (std::uint64_t number = 0; number < 2 * kEach; ++number) {
      typename Ring::Record record{};
      if (ring.read(number, record) != Ring::Outcome::kRead) continue;
      RL_ASSERT(record[1] == 100 + record[0] && record[2] == 1000 + record[0]);
    }
  }
};

TEST(ReplayModel, EveryEventThatIsReadIsWhole) {
  expect_clean<EventsModel<Fault::kNone>>(rl::random_scheduler_type, 100'000);
}

TEST(ReplayModel, EveryRowThatIsReadIsWhole) {
  expect_clean<RowsModel<Fault::kNone>>(rl::random_scheduler_type);
}

TEST(ReplayModel, ARepairMeetsNoChange) {
  expect_clean<RepairModel<Fault::kNone>>(rl::random_scheduler_type, 100'000);
}

TEST(ReplayModel, NoChangeOfAWeightIsLost) {
  expect_clean<WeightsModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<WeightsModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

TEST(ReplayModel, WhatIsBrokenIsNoticed) {
  EXPECT_NE(result_of<RowsModel<Fault::kRelaxedOrders>>(), rl::test_result_success);
  EXPECT_NE(result_of<RepairModel<Fault::kRelaxedOrders>>(100'000), rl::test_result_success);
  EXPECT_NE(result_of<EventsModel<Fault::kRelaxedOrders>>(), rl::test_result_success);
  EXPECT_NE(result_of<WeightsModel<Fault::kTornExchange>>(), rl::test_result_success);
}

}  // namespace
}  // namespace shoal::sync
