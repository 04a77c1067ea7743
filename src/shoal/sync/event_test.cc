#include "shoal/sync/event.h"

#include <gtest/gtest.h>

#include <chrono>

#include "shoal/sync/testing/owners_fixture.h"

namespace shoal::sync {
namespace {

using namespace std::chrono_literals;
using namespace testing;
using os::testing::Child;
using os::testing::test_deadline;

TEST(Event, IsSetUntilItIsCleared) {
  Event event{};
  EXPECT_FALSE(event.is_set());
  event.set();
  event.set();
  EXPECT_TRUE(event.is_set());
  EXPECT_EQ(event.park(event.sets(), os::Clock::now()), WaitOutcome::kReady);
  event.clear();
  EXPECT_FALSE(event.is_set());
  SpinPolicy policy = short_spin();
  EXPECT_EQ(event.wait(event.sets(), policy, os::deadline_after(1ms)), WaitOutcome::kTimedOut);
}

TEST(Event, ASetEndsTheWaitThatAClearFollows) {
  const Shared<Event> event;
  const std::uint32_t sets = event->sets();
  Child waiter([&] { return event->park(sets, test_deadline()) == WaitOutcome::kReady ? 0 : 1; });
  ASSERT_TRUE(waiter.wait_until_asleep());
  event->set();
  event->clear();
  EXPECT_EQ(waiter.join(), os::ProcessEnd{});
}

TEST(Event, WakesAllThatWait) {
  const Shared<Event> event;
  const auto wait = [&] {
    SpinPolicy policy = no_spin();
    return event->wait(0, policy, test_deadline()) == WaitOutcome::kReady ? 0 : 1;
  };
  Child one(wait), two(wait), three(wait);
  ASSERT_TRUE(one.wait_until_asleep() && two.wait_until_asleep() && three.wait_until_asleep());
  event->set();
  EXPECT_EQ(one.join(), os::ProcessEnd{});
  EXPECT_EQ(two.join(), os::ProcessEnd{});
  EXPECT_EQ(three.join(), os::ProcessEnd{});
}

/// Who waits sees what was written before the event was set; a second event says that it has read.
void publish_a_thousand_times(bool (*at_once)(const Bodies&)) {
  struct Two {
    alignas(64) Event written;
    alignas(64) Event read;
  };
  const Shared<Two> events;
  constexpr int kRounds = 1000;
  const auto wait = [](Event& event, std::uint32_t sets) {
    SpinPolicy policy = short_spin();
    return event.wait(sets, policy, test_deadline()) == WaitOutcome::kReady;
  };
  const auto write = [&] {
    for (int round = 1; round <= kRounds; ++round) {
      const std::uint32_t sets = events->read.sets();
      events.number() = round;
      events->written.set();
      if (!wait(events->read, sets)) return 1;
      events->read.clear();
    }
    return 0;
  };
  const auto read = [&] {
    for (int round = 1; round <= kRounds; ++round) {
      if (!wait(events->written, events->written.sets())) return 2;
      if (events.number() != round) return 3;
      events->written.clear();
      events->read.set();
    }
    return 0;
  };
  EXPECT_TRUE(at_once({write, read}));
}

TEST(Event, ProcessesPublishAThousandTimes) { publish_a_thousand_times(in_processes); }

TEST(Event, ThreadsPublishAThousandTimes) { publish_a_thousand_times(in_threads); }

TEST(Event, WhereverASetterIsKilledTheEventIsSetOrNot) {
  using Mortal = BasicEvent<MortalAtomics>;
  const Shared<Mortal> event;
  const int killed = kill_at_every_operation([&] { event->clear(); }, [&] { event->set(); },
                                             [&](int) {
                                               event->set();
                                               EXPECT_TRUE(event->is_set());
                                               event->clear();
                                               EXPECT_FALSE(event->is_set());
                                             });
  EXPECT_GE(killed, 2);
}

}  // namespace
}  // namespace shoal::sync
