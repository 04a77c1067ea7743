#include "shoal/os/futex.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <thread>

#include "shoal/os/memory/mapping.h"
#include "shoal/os/memory/memfd.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using namespace std::chrono_literals;

TEST(Futex, AChangedWordDoesNotSleep) {
  FutexWord word{1};
  EXPECT_EQ(futex_wait(word, 0, kNoDeadline), FutexOutcome::kChanged);
}

TEST(Futex, TheDeadlineEndsTheWait) {
  FutexWord word{1};
  EXPECT_EQ(futex_wait(word, 1, Deadline::min()), FutexOutcome::kTimedOut);
  EXPECT_EQ(futex_wait(word, 1, Clock::now() - 1s), FutexOutcome::kTimedOut);
  const Deadline deadline = deadline_after(2ms);
  EXPECT_EQ(futex_wait(word, 1, deadline), FutexOutcome::kTimedOut);
  EXPECT_GE(Clock::now(), deadline);
}

TEST(Futex, WakingNobodyWakesNobody) {
  FutexWord word{1};
  EXPECT_EQ(futex_wake_all(word), 0);
}

TEST(Futex, IsSeenThroughAnotherMappingInAnotherProcess) {
  const Memfd memfd = Memfd::create("futex", 4096);
  const Mapping mapping = Mapping::map(memfd, "futex");
  auto& word = *reinterpret_cast<FutexWord*>(mapping.data());
  testing::Child child([&] {
    const Mapping own = Mapping::map(memfd, "futex");
    const auto& own_word = *reinterpret_cast<FutexWord*>(own.data());
    if (own.data() == mapping.data()) return 2;
    return futex_wait(own_word, 0, testing::test_deadline()) == FutexOutcome::kWoken ? 0 : 1;
  });
  ASSERT_TRUE(child.wait_until_asleep());
  EXPECT_EQ(futex_wake(word, 1), 1);
  EXPECT_EQ(child.join(), ProcessEnd{});
}

TEST(Futex, ASignalHandlerEndsTheWait) {
  const Memfd memfd = Memfd::create("futex", 4096);
  const Mapping mapping = Mapping::map(memfd, "futex");
  const auto& word = *reinterpret_cast<FutexWord*>(mapping.data());
  testing::Child child([&] {
    struct sigaction action{};
    action.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &action, nullptr);
    return futex_wait(word, 0, testing::test_deadline()) == FutexOutcome::kInterrupted ? 0 : 1;
  });
  ASSERT_TRUE(child.wait_until_asleep());
  ASSERT_TRUE(child.pidfd().send_signal(SIGUSR1));
  EXPECT_EQ(child.join(), ProcessEnd{});
}

}  // namespace
}  // namespace shoal::os
