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
