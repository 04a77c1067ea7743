#include "shoal/os/process/process_id.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "shoal/os/fault_point.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using testing::Child;

TEST(ProcessId, ThisProcessRuns) {
  EXPECT_EQ(this_process().pid, ::getpid());
  EXPECT_GT(this_process().start_time, 0U);
  EXPECT_TRUE(is_running(this_process()));
}

TEST(ProcessId, AnotherStartTimeIsAnotherProcess) {
  ProcessId other = this_process();
  ++other.start_time;
  EXPECT_FALSE(is_running(other));
}

TEST(ProcessId, AProcessThatNobodyCollectedHasEnded) {
  Child child([]() -> int {
    for (;;) ::pause();
  });
  const ProcessId id{child.pid(), 0};
  EXPECT_TRUE(is_running(id));
  ASSERT_TRUE(child.pidfd().send_signal(SIGKILL));
  ASSERT_TRUE(child.pidfd().wait(testing::test_deadline()));
  EXPECT_FALSE(is_running(id));
}

TEST(ProcessId, AnotherProgramIsAnotherProcess) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  Child child([&]() -> int {
    const ProcessId me = this_process();
    if (::write(writer.get(), &me, sizeof me) != sizeof me) return 1;
    return ::execlp("sleep", "sleep", "1000", nullptr);
  });
  writer.reset();
  ProcessId id;
  ASSERT_EQ(::read(reader.get(), &id, sizeof id), static_cast<ssize_t>(sizeof id));
  EXPECT_NE(id.image, 0U);
  char end = 0;
  ASSERT_EQ(::read(reader.get(), &end, 1), 0);  // closed by the exec
  EXPECT_FALSE(is_running(id));
  id.image = 0;
  EXPECT_TRUE(is_running(id));
}

TEST(FaultPoint, KillsAtTheNthPass) {
  Child child([] {
    arm_fault_point("here", 3);
    for (int i = 0; i < 2; ++i) {
      SHOAL_FAULT_POINT("here");
      SHOAL_FAULT_POINT("elsewhere");
    }
    if (fault_point_passes() != 2) return 1;
    SHOAL_FAULT_POINT("here");
    return 2;
  });
  EXPECT_EQ(child.join(), (ProcessEnd{.code = 0, .signal = SIGKILL}));
}

}  // namespace
}  // namespace shoal::os
