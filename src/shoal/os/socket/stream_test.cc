#include "shoal/os/socket/stream.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
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

/// An address at which nobody answers: its backlog is full.
struct Deaf {
  explicit Deaf(std::uint32_t address, int port = 0) : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(address);
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    const auto* bound = reinterpret_cast<const sockaddr*>(&at);
    socklen_t size = sizeof at;
    if (::bind(socket.get(), bound, size) != 0 || ::listen(socket.get(), 0) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
      throw SystemError("listen");
    this->port = ntohs(at.sin_port);
    for (Fd& one : waiting) {
      one = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      static_cast<void>(::connect(one.get(), bound, size));
    }
  }
  Fd socket;
  std::array<Fd, 4> waiting;
  int port = 0;
};

TEST(Stream, WhoWaitsForAConnectionMayLookMeanwhile) {
  const Deaf deaf(INADDR_LOOPBACK);
  int looks = 0;
  const auto look = [&] {
    if (++looks == 3) throw Error("enough");
  };
  EXPECT_THROW(static_cast<void>(Stream::connect("127.0.0.1", deaf.port, test_deadline(), look)),
               Error);
  EXPECT_EQ(looks, 3);
}

constexpr const char* kTwoAddresses = "two-addresses.invalid";

TEST(Stream, AnAddressThatDoesNotAnswerLeavesTimeToTheNextOne) {
  auto listener = StreamListener::bind(true, 0);
  ASSERT_TRUE(listener);
  const Deaf deaf(INADDR_LOOPBACK + 1, listener->port());
  const Deadline deadline = deadline_after(3s);
  EXPECT_TRUE(Stream::connect(kTwoAddresses, listener->port(), deadline));
  EXPECT_GT(time_left(deadline), 0s);  // here it would answer at once, elsewhere in some of it
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
  EXPECT_FALSE(is_loopback("*")) << "who listens there listens everywhere";
}

}  // namespace
}  // namespace shoal::os

/// A resolver that knows a host with two addresses.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints,
                           addrinfo** list) {
  using Resolver = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto resolve = reinterpret_cast<Resolver>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host == nullptr || std::strcmp(host, shoal::os::kTwoAddresses) != 0)
    return resolve(host, port, hints, list);
  addrinfo* second = nullptr;
  const int failure = resolve("127.0.0.1", port, hints, &second);
  if (failure != 0 || resolve("127.0.0.2", port, hints, list) != 0) return failure;
  (*list)->ai_next = second;
  return 0;
}
