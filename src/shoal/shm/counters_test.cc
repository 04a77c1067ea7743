#include "shoal/shm/counters.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"

namespace shoal::shm {
namespace {

/// A table in its own segment.
struct Table {
  explicit Table(std::size_t capacity = 4)
      : arena(Arena::create("counters", Counters::bytes(capacity))),
        counters(Counters::create(memory(), capacity)) {}
  std::span<std::byte> memory() const { return {arena.base(), arena.size()}; }

  Arena arena;
  Counters counters;
};

TEST(Counters, ComeToBeWhenTheyAreAskedFor) {
  Table table;
  EXPECT_EQ(table.counters.size(), 0u);
  EXPECT_FALSE(table.counters.find("steps").has_value());
  EXPECT_EQ(table.counters.find_or_add("steps").value(), 0);
  EXPECT_EQ(table.counters.size(), 1u);
  EXPECT_EQ(table.counters[0].name(), "steps");
}

TEST(Counters, AnAddReturnsTheNewValue) {
  Table table;
  Counter steps = table.counters.find_or_add("steps");
  EXPECT_EQ(steps.add(), 1);
  EXPECT_EQ(steps.add(41), 42);
  EXPECT_EQ(steps.add(-43), -1);
  steps.set(7);
  EXPECT_EQ(table.counters.find_or_add("steps").value(), 7);
  EXPECT_EQ(table.counters.size(), 1u);
}

TEST(Counters, AnotherMappingReadsAndAdds) {
  Table table;
  table.counters.find_or_add("steps").add(5);
  const Arena other = Arena::attach(os::Fd::duplicate(table.arena.fd()));
  const Counters attached = Counters::attach({other.base(), other.size()});
  ASSERT_EQ(attached.size(), 1u);
  EXPECT_EQ(attached.find("steps")->value(), 5);
  attached.find_or_add("waits").add(2);
  EXPECT_EQ(table.counters.find("waits")->value(), 2);
}

TEST(Counters, ThreadsAndProcessesLoseNothing) {
  Table table;
  Counter steps = table.counters.find_or_add("steps");
  constexpr int kAdds = 10'000;
  const auto add = [&] {
    for (int i = 0; i < kAdds; ++i) Counter(steps).add();
    return 0;
  };
  os::testing::Child child(add);
  std::thread thread(add);
  add();
  thread.join();
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_EQ(steps.value(), 3 * kAdds);
}

TEST(Counters, NamesThatCannotBeThrow) {
  Table table;
  EXPECT_THROW(table.counters.find_or_add(""), InvalidArgument);
  EXPECT_THROW(table.counters.find_or_add(std::string(56, 'n')), InvalidArgument);
  EXPECT_THROW(table.counters.find_or_add(std::string("a\0b", 3)), InvalidArgument);
  EXPECT_NO_THROW(table.counters.find_or_add(std::string(55, 'n')));
}

TEST(Counters, AFullTableRefusesNewNamesOnly) {
  Table table(2);
  table.counters.find_or_add("a");
  table.counters.find_or_add("b");
  EXPECT_THROW(table.counters.find_or_add("c"), InvalidArgument);
  EXPECT_EQ(table.counters.find_or_add("b").add(), 1);
}

TEST(Counters, MemoryThatDoesNotFitThrows) {
  alignas(64) std::array<std::byte, 256> memory{};
  EXPECT_THROW(Counters::create(std::span(memory).first(127), 1), InvalidArgument);
  EXPECT_THROW(Counters::create(std::span(memory).subspan(8), 1), InvalidArgument);
  EXPECT_THROW(Counters::attach(memory), Error);
  Counters::create(memory, 1);
  EXPECT_EQ(Counters::attach(memory).capacity(), 1u);
  EXPECT_THROW(Counters::attach(std::span(memory).first(127)), InvalidArgument);
}

}  // namespace
}  // namespace shoal::shm
