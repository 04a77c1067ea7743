#include "shoal/os/socket/wake_socket.h"

#include <gtest/gtest.h>

#include "shoal/os/poll.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

bool readable(const WakeSocket& socket) { return poll_one(socket.fd(), POLLIN, Deadline::min()); }

TEST(WakeSocket, AWakeMakesItReadableUntilItIsCleared) {
  WakeSocket socket = WakeSocket::create();
  const Waker waker = Waker::create();
  EXPECT_FALSE(readable(socket));
  EXPECT_FALSE(socket.clear());
  EXPECT_TRUE(waker.wake(socket.name()));
  EXPECT_TRUE(waker.wake(socket.name()));
  EXPECT_TRUE(readable(socket));
  EXPECT_TRUE(socket.clear());
  EXPECT_FALSE(readable(socket));
}

TEST(WakeSocket, AThousandWakesDoNotBlock) {
  WakeSocket socket = WakeSocket::create();
  const Waker waker = Waker::create();
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(waker.wake(socket.name()));
  EXPECT_TRUE(socket.clear());
  EXPECT_FALSE(readable(socket));
}

TEST(WakeSocket, AnotherProcessWakesIt) {
  WakeSocket socket = WakeSocket::create();
  testing::Child child([&] { return Waker::create().wake(socket.name()) ? 0 : 1; });
  EXPECT_TRUE(poll_one(socket.fd(), POLLIN, testing::test_deadline()));
  EXPECT_EQ(child.join(), ProcessEnd{});
}

TEST(WakeSocket, AWakerIsToldThatItIsGone) {
  WakeName name;
  {
    const WakeSocket socket = WakeSocket::create();
    name = socket.name();
    EXPECT_TRUE(WakeSocket::exists(name));
    EXPECT_FALSE(readable(socket));
  }
  EXPECT_FALSE(WakeSocket::exists(name));
  EXPECT_FALSE(Waker::create().wake(name));
}

}  // namespace
}  // namespace shoal::os
