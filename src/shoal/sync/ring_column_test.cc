#include "shoal/sync/ring_column.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "shoal/sync/testing/owners_fixture.h"

namespace shoal::sync {
namespace {

using namespace testing;

constexpr RingColumnShape kShape{.rows = 5, .front = 13, .back = 9};  // no whole numbers of words
using Front = std::array<std::byte, kShape.front>;
using Back = std::array<std::byte, kShape.back>;

template <class Array>
Array filled(std::uint64_t number) {
  Array bytes;
  bytes.fill(static_cast<std::byte>(number));
  return bytes;
}

/// A row and the front of the next one, copied as a reader does.
struct Copied {
  Front front{}, next{};
  Back back{};
  bool whole = false;

  template <class Column>
  Copied(const Column& column, std::uint64_t row) {
    column.copy_front(row, front.data());
    column.copy_back(row, back.data());
    column.copy_front(row + 1, next.data());
    whole = column.is_whole(row);
  }
  bool is_of(std::uint64_t row) const {
    return front == filled<Front>(row) && back == filled<Back>(row) &&
           next == filled<Front>(row + 1);
  }
};

template <class Column>
void append(Column& column) {
  const std::uint64_t row = column.head();
  column.finish(filled<Back>(row).data(), filled<Front>(row + 1).data());
}

/// The words of a ring under two kinds of atomics of the same bytes.
struct Words {
  std::array<MortalAtomics::Word64, kShape.words_needed()> mortal;
  BasicRingColumn<MortalAtomics> column() { return {mortal.data(), kShape}; }
};

TEST(RingColumn, NothingIsThereBeforeTheFirstRowEnds) {
  std::vector<SystemAtomics::Word64> words(kShape.words_needed());
  RingColumn column(words.data(), kShape);
  EXPECT_FALSE(column.begun());
  EXPECT_EQ(column.head(), 0U);
  column.start(filled<Front>(0).data());
  EXPECT_TRUE(column.begun());
  EXPECT_EQ(column.head(), 0U);
  EXPECT_EQ(column.oldest(), 0U);
}

TEST(RingColumn, ItKeepsTheLastRowsOneLessThanItHasPlaces) {
  std::vector<SystemAtomics::Word64> words(kShape.words_needed());
  RingColumn column(words.data(), kShape);
  column.start(filled<Front>(0).data());
  for (std::uint64_t head = 1; head <= 17; ++head) {
    append(column);
    ASSERT_EQ(column.head(), head);
    ASSERT_EQ(column.oldest(), head < kShape.rows ? 0 : head + 1 - kShape.rows);
    for (std::uint64_t row = column.oldest(); row < head; ++row) {
      const Copied copied(column, row);
      EXPECT_TRUE(copied.whole) << row;
      EXPECT_TRUE(copied.is_of(row)) << row;
    }
    if (column.oldest() > 0) {
      EXPECT_FALSE(Copied(column, column.oldest() - 1).whole);
    }
  }
}

TEST(RingColumn, WhatThreadsReadWhileOneAppendsIsWhole) {
  constexpr std::uint64_t kRows = 30'000;
  std::vector<SystemAtomics::Word64> words(kShape.words_needed());
  RingColumn column(words.data(), kShape);
  column.start(filled<Front>(0).data());
  std::atomic<int> torn = 0;
  const auto read = [&] {
    for (std::uint64_t head = 0; head < kRows;) {
      head = column.head();
      if (head == 0) continue;
      for (const std::uint64_t row : {head - 1, column.oldest()}) {
        if (row >= head) continue;
        const Copied copied(column, row);
        torn += copied.whole && !copied.is_of(row);
      }
    }
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back(read);
  for (std::uint64_t row = 0; row < kRows; ++row) append(column);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0);
}

TEST(RingColumn, AWriterKilledAnywhereLeavesWholeRowsAndItsPlaceToTheNext) {
  const Shared<Words> words;
  words->column().start(filled<Front>(0).data());
  std::uint64_t before = 0;
  const int kills = kill_at_every_operation(
      [&] {
        auto column = words->column();
        append(column);
        before = column.head();
      },
      [&] {
        auto column = words->column();
        append(column);
      },
      [&](int) {
        auto column = words->column();
        ASSERT_EQ(column.head(), before);
        for (std::uint64_t row = column.oldest(); row < before; ++row) {
          const Copied copied(column, row);
          EXPECT_TRUE(copied.whole && copied.is_of(row)) << row;
        }
        append(column);
        EXPECT_TRUE(Copied(column, before).is_of(before)) << "its front was there already";
      });
  EXPECT_GE(kills, 7);  // a load, six stores
}

TEST(RingColumn, OneThatIsRestoredGoesOnLikeTheOther) {
  std::vector<SystemAtomics::Word64> words(kShape.words_needed());
  std::vector<SystemAtomics::Word64> others(kShape.words_needed());
  RingColumn column(words.data(), kShape);
  RingColumn other(others.data(), kShape);
  column.start(filled<Front>(0).data());
  for (int i = 0; i < 12; ++i) append(column);
  other.restore(column.head(), column.begun());
  ASSERT_EQ(other.oldest(), column.oldest());
  for (std::uint64_t row = column.oldest(); row <= column.head(); ++row)
    other.restore_row(row, filled<Front>(row).data(),
                      row < column.head() ? filled<Back>(row).data() : nullptr);
  for (int i = 0; i < 3; ++i) append(other);
  for (std::uint64_t row = other.oldest(); row < other.head(); ++row)
    EXPECT_TRUE(Copied(other, row).is_of(row)) << row;
}

}  // namespace
}  // namespace shoal::sync
