#include "shoal/os/socket/mailbox.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <vector>

#include "shoal/os/error.h"
#include "shoal/os/eventfd.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using testing::test_deadline;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string received_text(Mailbox& mailbox) {
  Message message;
  EXPECT_EQ(mailbox.recv(message, test_deadline()), RecvOutcome::kMessage);
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

class MailboxTest : public ::testing::Test {
 protected:
  Mailbox open(const std::string& which) { return Mailbox::open(name_ + which, name_); }
  [[nodiscard]] SendOutcome send(const std::string& which, const std::string& text,
                                 Deadline deadline = test_deadline()) {
    return sender_.send(name_ + which, bytes_of(text), {}, deadline);
  }

  const std::string name_ = unique_socket_name();
  MailboxSender sender_ = MailboxSender::create(name_);
};

TEST_F(MailboxTest, EachGetsWhatIsItsOwn) {
  Mailbox first = open("/1");
  Mailbox second = open("/2");
  EXPECT_EQ(send("/1", "one"), SendOutcome::kSent);
  EXPECT_EQ(send("/2", "two"), SendOutcome::kSent);
  EXPECT_EQ(send("/1", std::string(3'000'000, 'x')), SendOutcome::kSent);
  EXPECT_EQ(received_text(second), "two");
  EXPECT_EQ(received_text(first), "one");
  EXPECT_EQ(received_text(first), std::string(3'000'000, 'x'));
  Message message;
  EXPECT_EQ(second.recv(message, Clock::now()), RecvOutcome::kTimedOut);
}

TEST_F(MailboxTest, DescriptorsAndTagsTravel) {
  Mailbox mailbox = open("/1");
  const EventFd event;
  const int fd = event.fd();
  ASSERT_EQ(sender_.send(name_ + "/1", {}, {&fd, 1}, test_deadline(), 42), SendOutcome::kSent);
  Message message;
  ASSERT_EQ(mailbox.recv(message, test_deadline()), RecvOutcome::kMessage);
  EXPECT_EQ(message.fds.size(), 1u);
  EXPECT_EQ(message.tag, 42u);
}

TEST_F(MailboxTest, WithoutItsHolderIsClosed) {
  EXPECT_EQ(send("/none", "?"), SendOutcome::kClosed);
  {
    const Mailbox gone = open("/1");
  }
  EXPECT_EQ(send("/1", "?"), SendOutcome::kClosed);
}

TEST_F(MailboxTest, SmallMessagesForAllFitAtOnce) {
  std::vector<Mailbox> mailboxes;
  const std::string text(MailboxSender::kSmallBytes, 'x');
  for (int i = 0; i < MailboxSender::kMaxMailboxes; ++i) {
    const std::string path = fmt::format("/{}", i);
    mailboxes.push_back(open(path));
    for (int waiting = 0; waiting < MailboxSender::kMaxWaiting; ++waiting) {
      ASSERT_EQ(send(path, text, Clock::now()), SendOutcome::kSent) << i;
    }
  }
  for (Mailbox& mailbox : mailboxes) EXPECT_EQ(received_text(mailbox), text);
}

TEST_F(MailboxTest, AStrangerCannotSendToMailboxOrSender) {
  Mailbox mailbox = open("/1");
  const Fd stranger(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const auto& [to, error] : {std::pair{name_ + "/1", EPERM}, std::pair{name_, EPIPE}}) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, to.data(), to.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + to.size());
    errno = 0;
    EXPECT_LT(::sendto(stranger.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT,
                       reinterpret_cast<const sockaddr*>(&address), size),
              0);
    EXPECT_EQ(errno, error) << to;
  }
  EXPECT_EQ(send("/1", "the real one"), SendOutcome::kSent);
  EXPECT_EQ(received_text(mailbox), "the real one");
}

TEST_F(MailboxTest, NamesAreTakenOnceAndNeedASender) {
  const Mailbox mailbox = open("/1");
  EXPECT_THROW(open("/1"), SystemError);
  EXPECT_THROW(Mailbox::open(name_ + "/2", name_ + "-nobody"), SystemError);
  EXPECT_THROW(MailboxSender::create(std::string(200, 'x')), Error);
  EXPECT_NE(unique_socket_name(), unique_socket_name());
}

}  // namespace
}  // namespace shoal::os
