#include "shoal/os/process/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "shoal/os/error.h"
#include "shoal/os/eventfd.h"
#include "shoal/os/poll.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

bool is_blocked(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return ::sigismember(&mask, signal) == 1;
}

TEST(Signals, HaveNames) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(SIGRTMIN + 2), "SIGRTMIN+2");
  EXPECT_EQ(signal_name(0), "signal 0");
  EXPECT_EQ(signal_name(1000), "signal 1000");
}

TEST(BlockSignals, RestoresTheMaskOfBefore) {
  ASSERT_FALSE(is_blocked(SIGUSR1));
  {
    const BlockSignals outer({SIGUSR1});
    EXPECT_TRUE(is_blocked(SIGUSR1));
    EXPECT_FALSE(is_blocked(SIGUSR2));
    {
      const BlockSignals inner = BlockSignals::all();
      EXPECT_TRUE(is_blocked(SIGUSR2));
    }
    EXPECT_FALSE(is_blocked(SIGUSR2));
    EXPECT_TRUE(is_blocked(SIGUSR1));
  }
  EXPECT_FALSE(is_blocked(SIGUSR1));
}

TEST(BlockSignals, ANumberThatIsNoSignalThrows) {
  EXPECT_THROW(BlockSignals({1000}), InvalidArgument);
}

TEST(SignalFd, ReadsSignalsThatArrived) {
  const BlockSignals blocked({SIGUSR1, SIGUSR2});
  SignalFd signals({SIGUSR1, SIGUSR2});
  EXPECT_EQ(signals.read(), std::nullopt);
  ::kill(::getpid(), SIGUSR2);
  EXPECT_TRUE(poll_one(signals.fd(), POLLIN, testing::test_deadline()));
  EXPECT_EQ(signals.read(), SIGUSR2);
  EXPECT_EQ(signals.read(), std::nullopt);
}

TEST(EventFd, NotifyMakesItReadableUntilCleared) {
  EventFd event;
  EXPECT_FALSE(event.clear());
  event.notify();
  event.notify();
  EXPECT_TRUE(poll_one(event.fd(), POLLIN, Deadline::min()));
  EXPECT_TRUE(event.clear());
  EXPECT_FALSE(event.clear());
  EXPECT_FALSE(poll_one(event.fd(), POLLIN, deadline_after(std::chrono::milliseconds(1))));
}

TEST(Poll, OfNoDescriptorThrows) {
  EXPECT_THROW(static_cast<void>(poll_one(100'000, POLLIN, Deadline::min())), SystemError);
}

}  // namespace
}  // namespace shoal::os
