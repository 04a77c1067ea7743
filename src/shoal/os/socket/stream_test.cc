#include "shoal/os/socket/stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::test_deadline;

struct Ends {
  Stream here, there;
};

Ends connected() {
  auto listener = StreamListener::bind(true, 0);
  auto here = Stream::connect("127.0.0.1", listener->port(), test_deadline());
  auto there = listener->accept(test_deadline());
  return {std::move(*here), std::move(*there)};
}

TEST(Stream, BytesOfAnySizeArriveAsTheyWereSent) {
  Ends ends = connected();
  std::vector<std::byte> sent(3'000'000), received(sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7);
  std::jthread sender(
      [&] { EXPECT_EQ(ends.here.send(sent, test_deadline()), StreamOutcome::kDone); });
  EXPECT_EQ(ends.there.recv(received, test_deadline()), StreamOutcome::kDone);
  EXPECT_EQ(received, sent);
}

TEST(Stream, WhatWasSentBeforeTheEndIsReceivedAndThenTheEnd) {
  Ends ends = connected();
  const std::array<std::byte, 3> sent{std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_EQ(ends.here.send(sent, test_deadline()), StreamOutcome::kDone);
  ends.here = Stream();
  std::array<std::byte, 3> received{};
  EXPECT_EQ(ends.there.recv(received, test_deadline()), StreamOutcome::kDone);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(ends.there.recv(received, test_deadline()), StreamOutcome::kClosed);
}

TEST(Stream, ShutdownEndsTheWaitOfAnotherThread) {
  Ends ends = connected();
  std::jthread waiting([&] {
    std::array<std::byte, 1> received{};
    EXPECT_EQ(ends.there.recv(received, test_deadline()), StreamOutcome::kClosed);
  });
  ends.there.shutdown();
}

TEST(Stream, ADeadlineEndsAWaitForBytes) {
  Ends ends = connected();
  std::array<std::byte, 1> received{};
  EXPECT_EQ(ends.there.recv(received, deadline_after(1ms)), StreamOutcome::kTimedOut);
}

TEST(Stream, NobodyListensIsNoConnection) {
  int port = 0;
  {
    const auto listener = StreamListener::bind(true, 0);
    port = listener->port();
  }
  EXPECT_FALSE(Stream::connect("127.0.0.1", port, test_deadline()));
}

TEST(Stream, AHostWithoutAnAddressIsAnErrorThatNamesIt) {
  try {
    static_cast<void>(Stream::connect("no-such-host.invalid", 1, test_deadline()));
    FAIL() << "connected";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no-such-host.invalid"));
  }
}

TEST(StreamListener, ATakenPortIsNothing) {
  const auto first = StreamListener::bind(true, 0);
  EXPECT_FALSE(StreamListener::bind(true, first->port()));
}

TEST(StreamListener, OnAllAddressesTheLoopbackReachesIt) {
  auto listener = StreamListener::bind(false, 0);
  ASSERT_TRUE(listener);
  EXPECT_TRUE(Stream::connect("127.0.0.1", listener->port(), test_deadline()));
}

TEST(Stream, NoDescriptorIsInherited) {
  Ends ends = connected();
  const auto listener = StreamListener::bind(true, 0);
  for (const int fd : {ends.here.fd(), ends.there.fd(), listener->fd()})
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Stream, TheLoopbackIsKnown) {
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("127.1.2.3"));
  EXPECT_FALSE(is_loopback("192.0.2.1"));
}

}  // namespace
}  // namespace shoal::os
