#include "shoal/os/socket/named_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "shoal/os/error.h"
#include "shoal/os/socket/mailbox.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using testing::test_deadline;

TEST(NamedChannel, MessagesAndDescriptorsGoThrough) {
  const std::string name = unique_socket_name();
  auto listener = ChannelListener::bind(name);
  ASSERT_TRUE(listener);
  auto here = connect_channel(name);
  auto there = listener->accept(test_deadline());
  ASSERT_TRUE(here && there);
  const std::array<std::byte, 2> sent{std::byte{4}, std::byte{2}};
  const std::array<int, 1> fds{listener->fd()};
  ASSERT_EQ(here->send(sent, fds), SendOutcome::kSent);
  Message message;
  ASSERT_EQ(there->recv(message, test_deadline()), RecvOutcome::kMessage);
  EXPECT_EQ(message.bytes, std::vector<std::byte>(sent.begin(), sent.end()));
  EXPECT_EQ(message.fds.size(), 1u);
}

TEST(NamedChannel, ANameHasOneHolderAndIsFreeAfterIt) {
  const std::string name = unique_socket_name();
  EXPECT_FALSE(connect_channel(name));
  {
    const auto holder = ChannelListener::bind(name);
    ASSERT_TRUE(holder);
    EXPECT_FALSE(ChannelListener::bind(name));
  }
  EXPECT_TRUE(ChannelListener::bind(name));
}

TEST(NamedChannel, ANameThatIsTooLongIsAnError) {
  EXPECT_THROW(static_cast<void>(ChannelListener::bind(std::string(200, 'x'))), Error);
}

TEST(NamedChannel, AnotherUserIsRefusedAtBothEnds) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string name = unique_socket_name();
  auto listener = ChannelListener::bind(name);
  ASSERT_TRUE(listener);
  testing::Child stranger([&name] {
    if (::setuid(65534) != 0) return 2;
    try {
      static_cast<void>(connect_channel(name));
    } catch (const Error&) {
      return 0;
    }
    return 1;
  });
  EXPECT_THROW(static_cast<void>(listener->accept(test_deadline())), Error);
  EXPECT_EQ(stranger.join(), ProcessEnd{});
}

TEST(NamedChannel, NobodyComesUntilTheDeadline) {
  auto listener = ChannelListener::bind(unique_socket_name());
  EXPECT_FALSE(listener->accept(Deadline::min()));
}

}  // namespace
}  // namespace shoal::os
