#include "shoal/os/process/pidfd.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "shoal/os/error.h"
#include "shoal/os/socket/socket.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using namespace std::chrono_literals;

TEST(PidFd, ReportsAnExitCode) {
  testing::Child child([] { return 7; });
  EXPECT_EQ(child.join(), ProcessEnd{.code = 7});
}

TEST(PidFd, ReportsTheSignalThatKilled) {
  testing::Child child([] { return ::pause(); });
  EXPECT_FALSE(child.pidfd().ended());
  EXPECT_FALSE(child.pidfd().wait(deadline_after(1ms)));
  EXPECT_EQ(child.pidfd().reap(), std::nullopt);
  EXPECT_TRUE(child.pidfd().send_signal(SIGTERM));
  EXPECT_EQ(child.join(), ProcessEnd{.signal = SIGTERM});
}

TEST(PidFd, ASignalToAnEndedProcessIsAnOutcome) {
  testing::Child child([] { return 0; });
  ASSERT_TRUE(child.join());
  EXPECT_TRUE(child.pidfd().ended());
  EXPECT_FALSE(child.pidfd().send_signal(SIGTERM));
}

TEST(PidFd, CollectingTwiceThrows) {
  testing::Child child([] { return 0; });
  ASSERT_TRUE(child.join());
  try {
    child.pidfd().reap();
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ECHILD);
  }
}

TEST(PidFd, OfNoProcessThrows) {
  testing::Child child([] { return 0; });
  ASSERT_TRUE(child.join());
  EXPECT_THROW(PidFd::open(child.pid()), SystemError);
}

TEST(PidFd, WatchesAProcessThatIsNoChildOfItsHolder) {
  auto [left, right] = SeqPacket::pair();
  testing::Child watched([] { return ::pause(); });
  testing::Child watcher([socket = &right] {
    Message message;
    if (socket->recv(message, testing::test_deadline()) != RecvOutcome::kMessage) return 1;
    const PidFd pidfd(std::move(message.fds.at(0)));
    if (socket->send({}) != SendOutcome::kSent) return 2;
    return pidfd.wait(testing::test_deadline()) ? 0 : 3;
  });
  const int fds[] = {watched.pidfd().fd()};
  ASSERT_EQ(left.send({}, fds), SendOutcome::kSent);
  Message message;
  ASSERT_EQ(left.recv(message, testing::test_deadline()), RecvOutcome::kMessage);
  watched.kill();
  EXPECT_EQ(watcher.join(), ProcessEnd{});
}

}  // namespace
}  // namespace shoal::os
