#include "shoal/os/process_id.h"

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
