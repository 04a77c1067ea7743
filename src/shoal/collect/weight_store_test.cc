#include "shoal/collect/weight_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::collect {
namespace {

using os::testing::Child;

constexpr std::size_t kWeights = 128;
using Weights = std::vector<float>;

Weights filled(std::uint64_t version) { return Weights(kWeights, static_cast<float>(version)); }

std::span<const std::byte> bytes(const Weights& weights) {
  return std::as_bytes(std::span(weights));
}
std::span<std::byte> writable(Weights& weights) {
  return std::as_writable_bytes(std::span(weights));
}

bool is_whole(const Weights& weights, std::uint64_t version) { return weights == filled(version); }

/// The store as another process maps it.
WeightStore attached(const WeightStore& store) {
  return WeightStore::attach(os::Fd(::dup(store.fd())));
}

TEST(WeightStore, AnAttachedStoreReadsWhatWasPublished) {
  WeightStore store = WeightStore::create(kWeights * sizeof(float));
  const WeightStore other = attached(store);
  Weights read(kWeights);
  EXPECT_EQ(other.version(), 0U);
  EXPECT_EQ(other.read(writable(read)), 0U);
  for (std::uint64_t version = 1; version <= 7; ++version) {
    EXPECT_EQ(store.publish(bytes(filled(version))), version);
    EXPECT_EQ(other.version(), version);
    EXPECT_EQ(other.read(writable(read)), version);
    EXPECT_TRUE(is_whole(read, version));
  }
}

TEST(WeightStore, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(WeightStore::create(0), InvalidArgument);
  EXPECT_THROW(WeightStore::create(8, 1), InvalidArgument);
  EXPECT_THROW(WeightStore::create(~std::size_t{0} - 64), InvalidArgument);
  WeightStore store = WeightStore::create(16);
  std::vector<std::byte> other(15);
  EXPECT_THROW(store.publish(other), InvalidArgument);
  EXPECT_THROW(store.read(other), InvalidArgument);
}

TEST(WeightStore, AnArenaOfAnotherKindIsRefused) {
  const auto attach = [](const shm::Arena& arena) {
    return WeightStore::attach(os::Fd(::dup(arena.fd())));
  };
  EXPECT_THROW(attach(shm::Arena::create("something else", 4096)), Error);
  WeightStore store = WeightStore::create(64);
  const shm::Arena same = shm::Arena::attach(os::Fd(::dup(store.fd())));
  auto* header = same.at<WeightStoreHeader>(0);
  const std::vector<std::pair<std::uint32_t, std::uint64_t>> wrong = {
      {1, 64}, {3, 0}, {3, ~std::uint64_t{0}}, {~0U, 64}};
  for (const auto& [slots, size] : wrong) {
    header->slots = slots;
    header->bytes = size;
    EXPECT_THROW(attach(same), Error) << slots << " slots of " << size;
  }
}

// A million reads in two processes while a third publishes a thousand times a second.
TEST(WeightStore, NoReaderEverSeesATornSet) {
  constexpr int kReadsEach = 500'000;
  WeightStore store = WeightStore::create(kWeights * sizeof(float));
  store.publish(bytes(filled(1)));
  Child writer([&] {
    auto due = std::chrono::steady_clock::now();
    for (std::uint64_t version = 2;; ++version) {
      store.publish(bytes(filled(version)));
      due += std::chrono::milliseconds(1);
      std::this_thread::sleep_until(due);
    }
    return 0;
  });
  const auto read = [&] {
    const WeightStore mine = attached(store);
    Weights weights(kWeights);
    std::uint64_t last = 0;
    for (int reads = 0; reads < kReadsEach || last < 100; ++reads) {
      const std::uint64_t version = mine.read(writable(weights));
      if (!is_whole(weights, version)) return 1;
      if (version < last) return 2;
      last = version;
    }
    return 0;
  };
  Child first(read);
  Child second(read);
  for (Child* reader : {&first, &second}) {
    const auto end = reader->join();
    ASSERT_TRUE(end);
    EXPECT_EQ(end->code, 0) << "1: torn, 2: older than the one before";
  }
  EXPECT_GE(store.version(), 100U);
}

TEST(WeightStore, PublishersKilledAtAnyMomentLeaveAWholeSetToTheNext) {
  WeightStore store = WeightStore::create(kWeights * sizeof(float), 2);
  store.publish(bytes(filled(1)));
  std::mt19937 dice(3);
  Weights weights(kWeights);
  for (int kill = 0; kill < 50; ++kill) {
    const std::uint64_t before = store.version();
    Child writer([&] {
      WeightStore mine = attached(store);
      for (;;) mine.publish(bytes(filled(mine.version() + 1)));
      return 0;
    });
    const std::uint64_t until = before + 1 + dice() % 100;
    while (store.version() < until) std::this_thread::yield();
    writer.kill();
    const std::uint64_t version = store.read(writable(weights));
    EXPECT_TRUE(is_whole(weights, version));
    EXPECT_EQ(store.publish(bytes(filled(version + 1))), version + 1);
    EXPECT_EQ(store.read(writable(weights)), version + 1);
    EXPECT_TRUE(is_whole(weights, version + 1));
  }
}

}  // namespace
}  // namespace shoal::collect
