#include "shoal/sync/journal.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"
#include "shoal/sync/robust_lock.h"

namespace shoal::sync {
namespace {

/// Thrown where a process would have been killed.
struct Killed {};

/// How many more stores may be executed; death comes before the next one.
int stores_left = -1;

/// Plain words in the order of the program, as the dying thread's own CPU executes them.
struct DyingAtomics : SystemAtomics {
  struct Word64 {
    std::uint64_t value = 0;
    std::uint64_t load(std::memory_order) const { return value; }
    void store(std::uint64_t next, std::memory_order) {
      if (stores_left == 0) throw Killed{};
      if (stores_left > 0) --stores_left;
      value = next;
    }
  };
};

constexpr std::size_t kMax = 8;
using DyingJournal = BasicJournal<DyingAtomics, kMax>;
using DyingTransaction = BasicTransaction<DyingAtomics, kMax>;

struct Words {
  DyingJournal journal{};
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(16, 100);

  std::byte* base() { return reinterpret_cast<std::byte*>(words.data()); }

  /// Adds 1 to the first `count` words.
  void change(std::size_t count) {
    DyingTransaction change(journal, base());
    for (std::size_t i = 0; i < count; ++i) change.add(8 * i, 1);
    change.commit();
  }
};

std::vector<std::uint64_t> expected(std::size_t count, std::uint64_t first) {
  std::vector<std::uint64_t> words(16, 100);
  for (std::size_t i = 0; i < count; ++i) words[i] = first;
  return words;
}

TEST(Journal, ReadsSeeWhatWasNoted) {
  Words words;
  DyingTransaction change(words.journal, words.base());
  change.set(8, 5);
  change.set(8, 6);
  EXPECT_EQ(change.get(8), 6U);
  EXPECT_EQ(change.get(16), 100U);
  EXPECT_EQ(words.words[1], 100U);
  change.commit();
  EXPECT_EQ(words.words[1], 6U);
  EXPECT_FALSE(words.journal.recover(words.base()));
}

TEST(Journal, WithoutACommitNothingHappens) {
  Words words;
  {
    DyingTransaction change(words.journal, words.base());
    change.set(0, 1);
  }
  EXPECT_EQ(words.words, expected(0, 0));
}

TEST(Journal, ATransactionIsEmptyAfterItsCommit) {
  Words words;
  DyingTransaction change(words.journal, words.base());
  change.set(0, 1);
  change.commit();
  words.words[0] = 7;  // the next holder of the lock
  EXPECT_EQ(change.get(0), 7U);
  change.set(8, 2);
  change.commit();
  EXPECT_EQ(words.words[0], 7U);
  EXPECT_EQ(words.words[1], 2U);
}

/// Places are told apart by one bit of 64 before they are searched for: some share theirs.
TEST(Journal, ATransactionReadsAndWritesAsAMapDoes) {
  constexpr std::size_t kPlaces = 256;
  std::mt19937 dice(2);
  for (int round = 0; round < 200; ++round) {
    DyingJournal journal{};
    std::vector<std::uint64_t> words(kPlaces, 100), model = words;
    DyingTransaction change(journal, reinterpret_cast<std::byte*>(words.data()));
    for (std::size_t noted = 0; noted < kMax; ++noted) {
      const std::size_t at = dice() % kPlaces;
      change.add(8 * at, noted + 1);
      model[at] += noted + 1;
      for (std::size_t place = 0; place < kPlaces; ++place) {
        ASSERT_EQ(change.get(8 * place), model[place]);
      }
    }
    change.commit();
    EXPECT_EQ(words, model);
  }
}

TEST(JournalDeathTest, ATransactionLargerThanItsJournalIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Words words;
  DyingTransaction change(words.journal, words.base());
  for (std::size_t i = 0; i < kMax; ++i) change.set(8 * i, i);
  EXPECT_DEATH(change.set(8 * kMax, 1), "a transaction larger than its journal");
}

/// Kills at every store of a change, and at every store of each recovery from that.
TEST(Journal, ADeathAtAnyStoreLeavesAllOrNothing) {
  for (std::size_t count = 1; count <= kMax; ++count) {
    bool finished = false;
    for (int first = 0; !finished; ++first) {
      for (int second = 0;; ++second) {
        Words words;
        stores_left = first;
        try {
          words.change(count);
          finished = true;
        } catch (Killed) {
        }
        stores_left = second;
        bool killed_again = false;
        try {
          words.journal.recover(words.base());
        } catch (Killed) {
          killed_again = true;
        }
        stores_left = -1;
        words.journal.recover(words.base());
        EXPECT_TRUE(words.words == expected(count, 101) ||
                    (!finished && words.words == expected(0, 0)))
            << count << " words, death before store " << first << ", then " << second;
        // The next change begins from there, and finds the journal empty.
        const std::uint64_t now = words.words[0];
        EXPECT_FALSE(words.journal.recover(words.base()));
        words.change(count);
        EXPECT_EQ(words.words, expected(count, now + 1));
        if (!killed_again) break;
      }
    }
  }
}

/// Two words that are always equal, in a segment; a process is killed at random moments.
TEST(Journal, AKilledProcessLeavesItWhole) {
  struct Shared {
    RobustLock lock;
    Journal<4> journal;
    std::uint64_t words[2];
  };
  const shm::Arena arena = shm::Arena::create("journal", sizeof(Shared));
  Shared& shared = *arena.at<Shared>(0);
  shared.lock.init();
  const auto base = arena.base();
  const std::uint64_t first = offsetof(Shared, words);
  const auto enter = [&] {
    if (shared.lock.lock() == LockOutcome::kOwnerDied) shared.journal.recover(base);
  };
  std::mt19937 dice(1);
  std::uint64_t last = 0;
  for (int round = 0; round < 200; ++round) {
    os::testing::Child child([&]() -> int {
      for (;;) {
        enter();
        Transaction<4> change(shared.journal, base);
        change.add(first, 1);
        change.add(first + 8, 1);
        change.commit();
        shared.lock.unlock();
      }
    });
    for (const std::uint64_t until = last + 1 + dice() % 1000; last < until;) {
      enter();
      last = shared.words[0];
      EXPECT_EQ(shared.words[0], shared.words[1]);
      shared.lock.unlock();
    }
    child.kill();
    enter();
    EXPECT_EQ(shared.words[0], shared.words[1]);
    shared.lock.unlock();
  }
}

}  // namespace
}  // namespace shoal::sync
