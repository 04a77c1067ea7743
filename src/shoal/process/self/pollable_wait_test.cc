#include "shoal/process/self/pollable_wait.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "shoal/os/poll.h"
#include "shoal/os/testing/child.h"
#include "shoal/sync/gather.h"

namespace shoal::process {
namespace {

bool readable(const PollableWait& wait, std::chrono::milliseconds most) {
  return os::poll_one(wait.fd(), POLLIN, os::deadline_after(most));
}

PollableWait::Wait for_all_of(sync::Gather& gather) {
  return [&gather](os::Deadline deadline) {
    return gather.park(deadline) == sync::WaitOutcome::kReady;
  };
}

constexpr std::chrono::seconds kBound{30};

TEST(PollableWait, IsReadableWhenWhatIsWaitedForIsThere) {
  sync::Gather gather{};
  gather.start(1, 1);
  PollableWait wait;
  EXPECT_FALSE(readable(wait, std::chrono::milliseconds{0}));
  wait.arm(for_all_of(gather));
  gather.arrive(1);
  EXPECT_TRUE(readable(wait, kBound));
}

TEST(PollableWait, OfWhatDoesNotComeItWakesNowAndThen) {
  sync::Gather gather{};
  gather.start(1, 1);
  PollableWait wait;
  for (int i = 0; i < 3; ++i) {
    wait.arm(for_all_of(gather));
    EXPECT_TRUE(readable(wait, kBound));
  }
}

TEST(PollableWait, ArmedAnewItIsNotReadableBefore) {
  PollableWait wait;
  sync::Gather gather{};
  wait.arm(for_all_of(gather));  // nobody is awaited
  ASSERT_TRUE(readable(wait, kBound));
  std::atomic<bool> go = false;
  wait.arm([&](os::Deadline) {
    while (!go) std::this_thread::yield();
    return true;
  });
  EXPECT_FALSE(readable(wait, std::chrono::milliseconds{0}));
  go = true;
  EXPECT_TRUE(readable(wait, kBound));
}

TEST(PollableWait, NotifyMakesItReadable) {
  PollableWait wait;
  wait.notify();
  EXPECT_TRUE(readable(wait, std::chrono::milliseconds{0}));
}

}  // namespace
}  // namespace shoal::process
