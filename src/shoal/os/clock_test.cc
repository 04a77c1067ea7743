#include "shoal/os/clock.h"

#include <gtest/gtest.h>

namespace shoal::os {
namespace {

using namespace std::chrono_literals;

TEST(Clock, ATimeoutTooLongForTheClockIsNoDeadline) {
  EXPECT_EQ(deadline_after(std::chrono::nanoseconds::max()), kNoDeadline);
  EXPECT_LT(deadline_after(1h), kNoDeadline);
  EXPECT_GT(deadline_after(1h), Clock::now());
}

TEST(Clock, ANegativeTimeoutIsADeadlineInThePast) { EXPECT_LT(deadline_after(-1s), Clock::now()); }

TEST(Clock, NoTimeIsLeftAfterTheDeadline) {
  EXPECT_EQ(time_left(Clock::now() - 1s), 0ns);
  EXPECT_EQ(time_left(Deadline::min()), 0ns);
  EXPECT_GT(time_left(Clock::now() + 1h), 59min);
}

TEST(Clock, TimespecSplitsSecondsAndNanoseconds) {
  const std::timespec value = to_timespec(2'500'000'001ns);
  EXPECT_EQ(value.tv_sec, 2);
  EXPECT_EQ(value.tv_nsec, 500'000'001);
}

TEST(Clock, IsTheKernelsMonotonicClock) {
  std::timespec kernel{};
  ASSERT_EQ(::clock_gettime(CLOCK_MONOTONIC, &kernel), 0);
  const auto before = static_cast<std::uint64_t>(kernel.tv_sec) * 1'000'000'000 +
                      static_cast<std::uint64_t>(kernel.tv_nsec);
  const std::uint64_t now = now_ns();
  ASSERT_EQ(::clock_gettime(CLOCK_MONOTONIC, &kernel), 0);
  const auto after = static_cast<std::uint64_t>(kernel.tv_sec) * 1'000'000'000 +
                     static_cast<std::uint64_t>(kernel.tv_nsec);
  EXPECT_LE(before, now);
  EXPECT_LE(now, after);
}

}  // namespace
}  // namespace shoal::os
