#include "shoal/os/process/pidfd.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

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

// As where a debugger is attached, or strace. Some kernels have such a moment by themselves.
TEST(PidFd, CollectsWhatCanBeCollectedShortlyAfterItHasEnded) {
  testing::Child child([] {
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    return ::pause();
  });
  ASSERT_TRUE(child.wait_until_asleep());
  auto [ours, theirs] = SeqPacket::pair();
  testing::Child tracer([&child, socket = &theirs] {
    const bool traces = ::ptrace(PTRACE_SEIZE, child.pid(), nullptr, nullptr) == 0;
    const std::byte answer[] = {std::byte{traces}};
    if (socket->send(answer, {}, testing::test_deadline()) != SendOutcome::kSent) return 1;
    if (!child.pidfd().wait(testing::test_deadline())) return 2;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return 0;
  });
  Message message;
  ASSERT_EQ(ours.recv(message, testing::test_deadline()), RecvOutcome::kMessage);
  if (message.bytes[0] == std::byte{0}) GTEST_SKIP() << "a process may not trace another here";
  ::kill(child.pid(), SIGKILL);
  ASSERT_TRUE(child.pidfd().wait(testing::test_deadline()));
  EXPECT_EQ(child.join(), ProcessEnd{.signal = SIGKILL});
  EXPECT_EQ(tracer.join(), ProcessEnd{});
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
