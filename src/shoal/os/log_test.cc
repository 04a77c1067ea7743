#include "shoal/os/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(Log, WritesOneLineWithLevelAndProcess) {
  CaptureStderr();
  log(LogLevel::kWarning, "worker {} is late", 3);
  const std::string line = GetCapturedStderr();
  EXPECT_THAT(line, AllOf(HasSubstr("[warning] worker 3 is late\n"),
                          HasSubstr("[shoal " + std::to_string(::getpid()) + "]")));
}

TEST(Log, LeavesOutWhatIsBelowTheLevel) {
  CaptureStderr();
  log(LogLevel::kInfo, "quiet");
  set_log_level(LogLevel::kDebug);
  log(LogLevel::kDebug, "loud");
  set_log_level(LogLevel::kOff);
  log(LogLevel::kError, "off");
  set_log_level(LogLevel::kWarning);
  const std::string lines = GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("loud"));
  EXPECT_THAT(lines, ::testing::Not(HasSubstr("quiet")));
  EXPECT_THAT(lines, ::testing::Not(HasSubstr("off")));
}

TEST(Log, TheEnvironmentSetsTheLevel) {
  EXPECT_EQ(log_level_from("trace"), LogLevel::kTrace);
  EXPECT_EQ(log_level_from("error"), LogLevel::kError);
  EXPECT_EQ(log_level_from("off"), LogLevel::kOff);
  EXPECT_EQ(log_level_from(nullptr), LogLevel::kWarning);
  EXPECT_EQ(log_level_from("nonsense"), LogLevel::kWarning);
}

}  // namespace
}  // namespace shoal::os
