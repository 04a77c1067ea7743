#include "shoal/process/identity/shared_state.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::process {
namespace {

TEST(SharedState, AnotherProcessCountsOnIt) {
  const auto shared_state = SharedState::create();
  os::testing::Child child([&] {
    const auto attached = SharedState::attach(os::Fd::duplicate(shared_state->fd()));
    attached->counter("episodes").add(3);
    return attached->fd() == -1 ? 0 : 1;
  });
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  EXPECT_EQ(shared_state->counter("episodes").value(), 3);
  EXPECT_EQ(shared_state->counters(),
            (std::vector<std::pair<std::string, std::int64_t>>{{"episodes", 3}}));
}

TEST(SharedState, ACounterThatManyAskForAtOnceIsMadeOnce) {
  const auto shared_state = SharedState::create();
  constexpr int kNames = 100;
  const auto count = [&] {
    for (int i = 0; i < kNames; ++i) shared_state->counter("name " + std::to_string(i)).add();
    return 0;
  };
  os::testing::Child child(count);
  std::thread thread(count);
  count();
  thread.join();
  ASSERT_EQ(child.join(), os::ProcessEnd{});
  const auto counters = shared_state->counters();
  ASSERT_EQ(counters.size(), static_cast<std::size_t>(kNames));
  for (const auto& [name, value] : counters) EXPECT_EQ(value, 3) << name;
}

TEST(SharedState, CountersAndValuesDoNotMeet) {
  const auto shared_state = SharedState::create(500);
  for (std::size_t i = 0; i < SharedState::kCounters; ++i)
    shared_state->counter(std::to_string(i)).set(-1);
  EXPECT_THROW(shared_state->counter("one more"), InvalidArgument);
  EXPECT_TRUE(shared_state->values().names().empty());
  EXPECT_EQ(shared_state->values().capacity(), 500u);
}

TEST(SharedState, WhatIsNoneIsRefused) {
  EXPECT_THROW(SharedState::create(0), InvalidArgument);
  const shm::Arena other = shm::Arena::create("shoal vector env", 1 << 20);
  EXPECT_THROW(SharedState::attach(os::Fd::duplicate(other.fd())), Error);
}

}  // namespace
}  // namespace shoal::process
