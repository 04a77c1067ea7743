#include "shoal/os/process/time_slice.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <fstream>
#include <string>

#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using testing::Child;

/// In ns, where the kernel tells it; 0 where it does not.
long slice_of_this_thread() {
  std::ifstream file("/proc/self/sched");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("se.slice")) return std::stol(line.substr(line.find(':') + 1));
  }
  return 0;
}

int end_of(Child& child) {
  const auto end = child.join();
  return end ? end->code : -1;
}

TEST(TimeSlice, IsShortAfterwardsAndNiceAndPolicyAreKept) {
  Child child([] {
    if (::setpriority(PRIO_PROCESS, 0, 3) != 0) return 1;
    const long before = slice_of_this_thread();
    if (!shorten_time_slices()) return 2;
    if (::getpriority(PRIO_PROCESS, 0) != 3 || ::sched_getscheduler(0) != SCHED_OTHER) return 3;
    const long after = slice_of_this_thread();
    return before == 0 || after == before || after == 100'000 ? 0
                                                              : 4;  // as before: an older kernel
  });
  EXPECT_EQ(end_of(child), 0);
}

TEST(TimeSlice, OfAnIdleThreadStaysAsItIs) {
  Child child([] {
    const sched_param none{};
    if (::sched_setscheduler(0, SCHED_IDLE, &none) != 0) return 1;
    if (shorten_time_slices()) return 2;
    return ::sched_getscheduler(0) == SCHED_IDLE ? 0 : 3;
  });
  EXPECT_EQ(end_of(child), 0);
}

}  // namespace
}  // namespace shoal::os
