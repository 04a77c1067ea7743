#include "shoal/shm/counters.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"

namespace shoal::shm {
namespace {

/// A table in its own segment.
struct Table {
  explicit Table(const std::vector<std::string>& names)
      : arena(Arena::create("counters", Counters::bytes(names.size()))),
        counters(Counters::create(memory(), names)) {}
  std::span<std::byte> memory() const { return {arena.base(), arena.size()}; }

  Arena arena;
  Counters counters;
};

TEST(Counters, StartAtZeroAndAdd) {
  Table table({"steps", "waits"});
  EXPECT_EQ(table.counters.size(), 2u);
  EXPECT_EQ(table.counters[0].value(), 0u);
  table.counters[1].add();
  table.counters[1].add(41);
  EXPECT_EQ(table.counters[1].value(), 42u);
  EXPECT_EQ(table.counters[0].value(), 0u);
  table.counters[1].set(7);
  EXPECT_EQ(table.counters[1].value(), 7u);
}

TEST(Counters, AreFoundByName) {
  Table table({"steps", "waits"});
  EXPECT_EQ(table.counters.find("waits")->name(), "waits");
  EXPECT_FALSE(table.counters.find("wait").has_value());
}

TEST(Counters, AnotherMappingReadsThem) {
  Table table({"steps", "waits"});
  table.counters[1].add(5);
  const Arena other = Arena::attach(os::Fd::duplicate(table.arena.fd()));
  const Counters attached = Counters::attach({other.base(), other.size()});
  ASSERT_EQ(attached.size(), 2u);
  EXPECT_EQ(attached.find("waits")->value(), 5u);
}

TEST(Counters, ThreadsAndProcessesLoseNothing) {
  Table table({"steps"});
  constexpr int kAdds = 10'000;
  const auto add = [&] {
    for (int i = 0; i < kAdds; ++i) table.counters[0].add();
    return 0;
  };
  os::testing::Child child(add);
  std::thread thread(add);
  add();
  thread.join();
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_EQ(table.counters[0].value(), 3u * kAdds);
}

TEST(Counters, NamesThatCannotBeThrow) {
  EXPECT_THROW(Table({""}), InvalidArgument);
  EXPECT_THROW(Table({std::string(56, 'n')}), InvalidArgument);
  EXPECT_NO_THROW(Table({std::string(55, 'n')}));
  EXPECT_THROW(Table({"steps", "waits", "steps"}), InvalidArgument);
}

TEST(Counters, MemoryThatDoesNotFitThrows) {
  alignas(64) std::array<std::byte, 256> memory{};
  const std::vector<std::string> names(1, "steps");
  EXPECT_THROW(Counters::create(std::span(memory).first(127), names), InvalidArgument);
  EXPECT_THROW(Counters::create(std::span(memory).subspan(8), names), InvalidArgument);
  EXPECT_THROW(Counters::attach(memory), Error);
  Counters::create(memory, names);
  EXPECT_EQ(Counters::attach(memory).size(), 1u);
  EXPECT_THROW(Counters::attach(std::span(memory).first(127)), InvalidArgument);
}

}  // namespace
}  // namespace shoal::shm
