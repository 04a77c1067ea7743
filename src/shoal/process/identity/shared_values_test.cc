#include "shoal/process/identity/shared_values.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"
#include "shoal/shm/arena.h"

namespace shoal::process {
namespace {

using os::testing::Child;
using os::testing::test_deadline;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string text(const std::optional<SharedValue>& value) {
  if (!value) return "none";
  return {reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size()};
}

struct Table {
  explicit Table(std::size_t capacity = 1000)
      : arena(shm::Arena::create("values", SharedValues::bytes(capacity))),
        values(SharedValues::create({arena.base(), arena.size()}, capacity)) {}

  shm::Arena arena;
  SharedValues values;
};

TEST(SharedValues, WhatIsSetIsGot) {
  const Table table;
  EXPECT_EQ(text(table.values.get("a")), "none");
  EXPECT_TRUE(table.values.set("a", bytes("one")));
  EXPECT_TRUE(table.values.set("b", bytes("")));
  EXPECT_EQ(text(table.values.get("a")), "one");
  EXPECT_EQ(text(table.values.get("b")), "");
  EXPECT_TRUE(table.values.set("a", bytes("another, longer one")));
  EXPECT_EQ(text(table.values.get("a")), "another, longer one");
  EXPECT_EQ(table.values.names(), (std::vector<std::string>{"a", "b"}));
}

TEST(SharedValues, WhatIsErasedIsGone) {
  const Table table;
  table.values.set("a", bytes("1"));
  table.values.set("b", bytes("2"));
  EXPECT_TRUE(table.values.erase("a"));
  EXPECT_FALSE(table.values.erase("a"));
  EXPECT_EQ(table.values.names(), std::vector<std::string>{"b"});
  table.values.clear();
  EXPECT_TRUE(table.values.names().empty());
}

TEST(SharedValues, AWriteThatExpectsAnotherVersionIsNone) {
  const Table table;
  EXPECT_TRUE(table.values.set("a", bytes("1"), 0));
  EXPECT_FALSE(table.values.set("a", bytes("2"), 0));
  const std::uint64_t first = table.values.get("a")->version;
  EXPECT_TRUE(table.values.set("a", bytes("3"), first));
  EXPECT_FALSE(table.values.set("a", bytes("4"), first));
  EXPECT_FALSE(table.values.erase("a", first));
  EXPECT_EQ(text(table.values.get("a")), "3");
  EXPECT_TRUE(table.values.erase("a", table.values.get("a")->version));
  EXPECT_TRUE(table.values.set("a", bytes("5"), 0));
}

TEST(SharedValues, WhatDoesNotFitIsRefusedAndNothingIsLost) {
  const Table table(100);
  table.values.set("a", bytes(std::string(60, 'a')));
  EXPECT_THROW(table.values.set("b", bytes(std::string(60, 'b'))), InvalidArgument);
  EXPECT_THROW(table.values.set("c", bytes(std::string(101, 'c'))), InvalidArgument);
  EXPECT_EQ(text(table.values.get("a")), std::string(60, 'a'));
  EXPECT_EQ(table.values.names(), std::vector<std::string>{"a"});
  EXPECT_TRUE(table.values.set("a", bytes(std::string(80, 'd'))));
}

TEST(SharedValues, AnotherMappingHasTheSame) {
  const Table table;
  table.values.set("a", bytes("1"));
  const shm::Arena other = shm::Arena::attach(os::Fd::duplicate(table.arena.fd()));
  const SharedValues attached = SharedValues::attach({other.base(), other.size()});
  EXPECT_EQ(text(attached.get("a")), "1");
  attached.set("b", bytes("2"));
  EXPECT_EQ(text(table.values.get("b")), "2");
}

TEST(SharedValues, OtherMemoryIsRefused) {
  const shm::Arena arena = shm::Arena::create("other", 4096);
  EXPECT_THROW(SharedValues::attach({arena.base(), arena.size()}), Error);
  EXPECT_THROW(SharedValues::create({arena.base(), 100}, 1000), InvalidArgument);
}

TEST(SharedValues, ConcurrentUpdatesByVersionLoseNothing) {
  const Table table;
  table.values.set("sum", bytes("0"));
  constexpr int kAdds = 2'000;
  const auto add = [&] {
    for (int i = 0; i < kAdds; ++i) {
      for (;;) {
        const auto now = table.values.get("sum");
        const std::string next = std::to_string(std::stoi(text(now)) + 1);
        if (table.values.set("sum", bytes(next), now->version)) break;
      }
    }
    return 0;
  };
  Child child(add);
  std::thread thread(add);
  add();
  thread.join();
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_EQ(text(table.values.get("sum")), std::to_string(3 * kAdds));
}

// Killed at a random point of a write, again and again: every value is one that somebody wrote.
TEST(SharedValues, AKilledWriterLeavesThemWhole) {
  const Table table(10'000);
  for (int round = 0; round < 30; ++round) {
    Child writer([&]() -> int {
      for (char c = 'a';; c = c == 'z' ? 'a' : static_cast<char>(c + 1)) {
        table.values.set(std::string("key ") + c, bytes(std::string(100, c)));
      }
    });
    while (table.values.names().size() < 3) std::this_thread::yield();
    writer.kill();
    for (const std::string& name : table.values.names()) {
      EXPECT_EQ(text(table.values.get(name)), std::string(100, name.back()));
    }
    EXPECT_TRUE(table.values.set("after", bytes(std::string(100, 'r'))));
    table.values.clear();
  }
}

}  // namespace
}  // namespace shoal::process
