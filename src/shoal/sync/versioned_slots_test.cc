#include "shoal/sync/versioned_slots.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "shoal/sync/testing/owners_fixture.h"

namespace shoal::sync {
namespace {

using namespace testing;

constexpr std::size_t kBytes = 37;  // no whole number of words
constexpr std::size_t kSlots = 2;
constexpr std::size_t kWords = VersionedSlots::words_needed(kBytes, kSlots);
using Value = std::array<std::byte, kBytes>;

Value filled(std::uint64_t number) {
  Value value;
  value.fill(static_cast<std::byte>(number));
  return value;
}

/// The words of slots under two kinds of atomics of the same bytes.
struct Words {
  std::array<MortalAtomics::Word64, kWords> mortal;
  BasicVersionedSlots<MortalAtomics> slots() { return {mortal.data(), kBytes, kSlots}; }
};

TEST(VersionedSlots, ThereIsNoVersionBeforeTheFirstWrite) {
  std::vector<SystemAtomics::Word64> words(kWords);
  const VersionedSlots slots(words.data(), kBytes, kSlots);
  Value value = filled(7);
  EXPECT_EQ(slots.version(), 0U);
  EXPECT_EQ(slots.read(value.data()), 0U);
  EXPECT_EQ(value, filled(7));
}

TEST(VersionedSlots, ReadGivesTheNewestVersionAndNoByteMore) {
  std::vector<SystemAtomics::Word64> words(kWords);
  VersionedSlots slots(words.data(), kBytes, kSlots);
  for (std::uint64_t version = 1; version <= 5; ++version) {
    EXPECT_EQ(slots.write(filled(version).data()), version);
    std::array<std::byte, kBytes + 1> value{};
    EXPECT_EQ(slots.read(value.data()), version);
    EXPECT_TRUE(std::equal(value.begin(), value.end() - 1, filled(version).begin()));
    EXPECT_EQ(value.back(), std::byte{0});
  }
}

TEST(VersionedSlots, WhatThreadsReadWhileOneWritesIsWhole) {
  constexpr std::uint64_t kVersions = 20'000;
  std::vector<SystemAtomics::Word64> words(kWords);
  VersionedSlots slots(words.data(), kBytes, kSlots);
  std::atomic<int> torn = 0, backwards = 0;
  const auto read = [&] {
    std::uint64_t last = 0;
    for (Value value{}; last < kVersions;) {
      const std::uint64_t version = slots.read(value.data());
      if (version == 0) continue;
      torn += value != filled(version);
      backwards += version < last;
      last = version;
    }
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back(read);
  for (std::uint64_t version = 1; version <= kVersions; ++version) {
    slots.write(filled(version).data());
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(backwards, 0);
}

TEST(VersionedSlots, AWriterKilledAnywhereLeavesAWholeVersionAndItsPlaceToTheNext) {
  const Shared<Words> words;
  std::uint64_t before = 0;
  const int kills = kill_at_every_operation(
      [&] {
        before = words->slots().version();
        before = words->slots().write(filled(before + 1).data());
      },
      [&] { words->slots().write(filled(before + 1).data()); },
      [&](int) {
        Value value{};
        const std::uint64_t version = words->slots().read(value.data());
        EXPECT_TRUE(version == before || version == before + 1);
        EXPECT_EQ(value, filled(version));
        EXPECT_EQ(words->slots().write(filled(version + 1).data()), version + 1);
        EXPECT_EQ(words->slots().read(value.data()), version + 1);
        EXPECT_EQ(value, filled(version + 1));
      });
  EXPECT_GE(kills, 8);  // a load and seven stores
}

TEST(VersionedSlots, AReaderKilledAnywhereStandsInNobodysWay) {
  const Shared<Words> words;
  std::uint64_t version = 0;
  const auto write = [&] { version = words->slots().write(filled(version + 1).data()); };
  write();
  const int kills = kill_at_every_operation([] {},
                                            [&] {
                                              Value value{};
                                              words->slots().read(value.data());
                                            },
                                            [&](int) {
                                              for (std::size_t i = 0; i < 2 * kSlots; ++i) write();
                                              Value value{};
                                              EXPECT_EQ(words->slots().read(value.data()), version);
                                              EXPECT_EQ(value, filled(version));
                                            });
  EXPECT_GE(kills, 8);
}

}  // namespace
}  // namespace shoal::sync
