#include "shoal/os/socket/socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/eventfd.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::test_deadline;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(const Message& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

std::string received_text(SeqPacket& socket) {
  Message message;
  EXPECT_EQ(socket.recv(message, test_deadline()), RecvOutcome::kMessage);
  return text_of(message);
}

TEST(SeqPacket, KeepsMessagesApartAndInOrder) {
  auto [left, right] = SeqPacket::pair();
  EXPECT_EQ(left.send(bytes_of("one")), SendOutcome::kSent);
  EXPECT_EQ(left.send(bytes_of("")), SendOutcome::kSent);
  EXPECT_EQ(left.send(bytes_of("three")), SendOutcome::kSent);
  EXPECT_EQ(received_text(right), "one");
  EXPECT_EQ(received_text(right), "");
  EXPECT_EQ(received_text(right), "three");
}

TEST(SeqPacket, LastWordsOfAPeerThatLeftMessagesUnreadArrive) {
  auto [left, right] = SeqPacket::pair();
  EXPECT_EQ(left.send(bytes_of("never read")), SendOutcome::kSent);
  EXPECT_EQ(right.send(bytes_of("last words")), SendOutcome::kSent);
  right.close();
  EXPECT_EQ(received_text(left), "last words");
  Message message;
  EXPECT_EQ(left.recv(message, test_deadline()), RecvOutcome::kClosed);
}

TEST(SeqPacket, MessagesOfAnySizeArriveWhole) {
  auto [left, right] = SeqPacket::pair();
  for (const std::size_t size :
       {SeqPacket::kMaxInlineBytes, SeqPacket::kMaxInlineBytes + 1, std::size_t{20'000'000}}) {
    std::string text(size, 'a');
    text.front() = '<';
    text.back() = '>';
    ASSERT_EQ(left.send(bytes_of(text), {}, test_deadline()), SendOutcome::kSent);
    EXPECT_EQ(received_text(right), text) << size;
  }
}

TEST(SeqPacket, CarriesDescriptorsCloseOnExec) {
  auto [left, right] = SeqPacket::pair();
  EventFd event;
  const std::string large(100'000, 'x');
  for (const std::string& text : {std::string("small"), large}) {
    const int fds[] = {event.fd(), event.fd()};
    ASSERT_EQ(left.send(bytes_of(text), fds), SendOutcome::kSent);
    Message message;
    ASSERT_EQ(right.recv(message, test_deadline()), RecvOutcome::kMessage);
    EXPECT_EQ(text_of(message), text);
    ASSERT_EQ(message.fds.size(), 2u);
    EXPECT_EQ(::fcntl(message.fds[0].get(), F_GETFD), FD_CLOEXEC);
    EventFd received(std::move(message.fds[1]));
    received.notify();
    EXPECT_TRUE(event.clear());
  }
}

TEST(SeqPacket, CarriesAsManyDescriptorsAsItSays) {
  auto [left, right] = SeqPacket::pair();
  const EventFd event;
  const std::vector<int> most(SeqPacket::kMaxFds, event.fd());
  ASSERT_EQ(left.send(bytes_of(std::string(100'000, 'x')), most), SendOutcome::kSent);
  Message message;
  ASSERT_EQ(right.recv(message, test_deadline()), RecvOutcome::kMessage);
  EXPECT_EQ(message.fds.size(), SeqPacket::kMaxFds);
  const std::vector<int> more(SeqPacket::kMaxFds + 1, event.fd());
  EXPECT_THROW(static_cast<void>(left.send({}, more)), InvalidArgument);
}

TEST(SeqPacket, DescriptorsLostToTheLimitAreAnError) {
  auto [left, right] = SeqPacket::pair();
  const EventFd event;
  const std::vector<int> fds(8, event.fd());
  ASSERT_EQ(left.send(bytes_of("x"), fds), SendOutcome::kSent);
  testing::Child child([&] {
    const rlimit limit{static_cast<rlim_t>(event.fd()) + 4, 64};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    Message message;
    try {
      static_cast<void>(right.recv(message, test_deadline()));
    } catch (const SystemError& error) {
      return error.error_number() == EMFILE &&
                     std::string(error.what()).find("ulimit -n") != std::string::npos
                 ? 0
                 : 3;
    }
    return 1;
  });
  EXPECT_EQ(child.join(), ProcessEnd{});
}

TEST(SeqPacket, RecvReturnsWhenTheDeadlinePasses) {
  auto [left, right] = SeqPacket::pair();
  Message message;
  EXPECT_EQ(right.recv(message, Deadline::min()), RecvOutcome::kTimedOut);
  EXPECT_EQ(right.recv(message, deadline_after(2ms)), RecvOutcome::kTimedOut);
  ASSERT_EQ(left.send(bytes_of("late")), SendOutcome::kSent);
  EXPECT_EQ(right.recv(message, Deadline::min()), RecvOutcome::kMessage);
}

TEST(SeqPacket, SendReturnsWhenTheReceiverDoesNotKeepUp) {
  auto [left, right] = SeqPacket::pair();
  const std::string text(SeqPacket::kMaxInlineBytes, 'x');
  int sent = 0;
  while (left.send(bytes_of(text), {}, deadline_after(1ms)) == SendOutcome::kSent) ++sent;
  EXPECT_GT(sent, 0);
  for (int i = 0; i < sent; ++i) EXPECT_EQ(received_text(right).size(), text.size());
  EXPECT_EQ(left.send(bytes_of("again"), {}, test_deadline()), SendOutcome::kSent);
}

TEST(SeqPacket, AClosedPeerIsAnOutcomeAfterItsLastMessage) {
  auto [left, right] = SeqPacket::pair();
  ASSERT_EQ(left.send(bytes_of("last words")), SendOutcome::kSent);
  left.close();
  EXPECT_EQ(received_text(right), "last words");
  Message message;
  EXPECT_EQ(right.recv(message, test_deadline()), RecvOutcome::kClosed);
  EXPECT_EQ(right.send(bytes_of("hello?")), SendOutcome::kClosed);
}

TEST(SeqPacket, APeerThatDiesWithUnreadMessagesIsClosed) {
  auto [left, right] = SeqPacket::pair();
  testing::Child child([&, peer = &right] {
    left.close();
    Message message;
    return peer->recv(message) == RecvOutcome::kMessage ? ::pause() : 1;
  });
  right.close();
  ASSERT_EQ(left.send(bytes_of("one")), SendOutcome::kSent);
  ASSERT_EQ(left.send(bytes_of("two")), SendOutcome::kSent);
  child.kill();
  Message message;
  EXPECT_EQ(left.recv(message, test_deadline()), RecvOutcome::kClosed);
  EXPECT_EQ(left.send(bytes_of("three")), SendOutcome::kClosed);
}

TEST(SeqPacket, ShutdownEndsAWaitInAnotherThread) {
  auto [left, right] = SeqPacket::pair();
  std::thread waiter([socket = &right] {
    Message message;
    EXPECT_EQ(socket->recv(message, test_deadline()), RecvOutcome::kClosed);
  });
  right.shutdown();
  waiter.join();
}

TEST(SeqPacket, TalksToAnotherProcess) {
  auto [left, right] = SeqPacket::pair();
  testing::Child child([&, echo = &right] {
    Message message;
    if (echo->recv(message, test_deadline()) != RecvOutcome::kMessage) return 1;
    return echo->send(message.bytes) == SendOutcome::kSent ? 0 : 2;
  });
  const std::string text(1'000'000, 'e');
  ASSERT_EQ(left.send(bytes_of(text)), SendOutcome::kSent);
  EXPECT_EQ(received_text(left), text);
  EXPECT_EQ(child.join(), ProcessEnd{});
}

TEST(SeqPacket, TakesOverAnInheritedSocketOnly) {
  auto [left, right] = SeqPacket::pair();
  SeqPacket again(right.release());
  ASSERT_EQ(left.send(bytes_of("x")), SendOutcome::kSent);
  EXPECT_EQ(received_text(again), "x");

  EXPECT_THROW(SeqPacket(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC))), SystemError);
  EXPECT_THROW(SeqPacket(Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))), Error);
  EXPECT_THROW(SeqPacket(Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0))), Error);
}

TEST(SeqPacket, APacketThatIsNoneOfOursIsAnErrorAndTakenOffTheQueue) {
  auto [left, right] = SeqPacket::pair();
  const std::string junk(100, 'j');
  for (const std::string& packet : {std::string("short"), junk, std::string(150'000, 'j')}) {
    ASSERT_EQ(::send(left.fd(), packet.data(), packet.size(), 0),
              static_cast<ssize_t>(packet.size()));
    Message message;
    EXPECT_THROW(static_cast<void>(right.recv(message, test_deadline())), Error) << packet.size();
  }
  ASSERT_EQ(left.send(bytes_of("fine")), SendOutcome::kSent);
  EXPECT_EQ(received_text(right), "fine");
}

TEST(SeqPacket, SpeaksToTheSameUserOnly) {
  EXPECT_NO_THROW(check_peer_uid(1000, 1000));
  try {
    check_peer_uid(1001, 1000);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("from user 1001"));
  }
}

TEST(SeqPacket, RefusesASocketOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a socket as another user";
  auto [left, right] = SeqPacket::pair();
  testing::Child child([socket = &right] {
    // The socket was made by root; who gives up root is another user.
    if (::setuid(65534) != 0) return 2;
    try {
      SeqPacket adopted(socket->release());
    } catch (const Error&) {
      return 0;
    }
    return 1;
  });
  EXPECT_EQ(child.join(), ProcessEnd{});
}

}  // namespace
}  // namespace shoal::os
