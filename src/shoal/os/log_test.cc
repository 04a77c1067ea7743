#include "shoal/os/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

std::string& taken() {
  static std::string text;
  return text;
}

bool take(const LogLine& line) noexcept {
  if (line.level != LogLevel::kWarning) return false;
  taken() += fmt::format("{}: {}: {};", line.who, line.source, line.text);
  return true;
}

TEST(Log, WritesOneLineWithLevelSourceAndProcess) {
  CaptureStderr();
  log(LogLevel::kWarning, "vector", "worker {} is late", 3);
  const std::string line = GetCapturedStderr();
  EXPECT_THAT(line, HasSubstr("[shoal.vector " + std::to_string(::getpid()) +
                              "] [warning] worker 3 is late\n"));
}

TEST(Log, LeavesOutWhatIsBelowTheLevel) {
  CaptureStderr();
  log(LogLevel::kInfo, "vector", "quiet");
  set_log_level(LogLevel::kDebug);
  log(LogLevel::kDebug, "vector", "loud");
  set_log_level(LogLevel::kOff);
  log(LogLevel::kError, "vector", "off");
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

TEST(Log, WhatIsTakenDoesNotGoToStderr) {
  taken().clear();
  set_log_taker(take);
  CaptureStderr();
  log(LogLevel::kWarning, "serve", "taken\nwhole");
  log(LogLevel::kError, "serve", "left");
  EXPECT_TRUE(pass_on_log({.source = "vector", .text = "of another", .who = "worker 1", .pid = 1}));
  set_log_taker(nullptr);
  log(LogLevel::kWarning, "serve", "later");
  const std::string lines = GetCapturedStderr();
  EXPECT_EQ(taken(), ": serve: taken\nwhole;worker 1: vector: of another;");
  EXPECT_THAT(lines, AllOf(HasSubstr("left"), HasSubstr("later")));
  EXPECT_THAT(lines, ::testing::Not(HasSubstr("whole")));
  EXPECT_FALSE(pass_on_log({.source = "vector", .text = "of another", .who = {}, .pid = 1}));
}

TEST(Log, ItsLinesAreFoundInOutput) {
  CaptureStderr();
  log(LogLevel::kError, "vector", "first [x] line\nsecond");
  const std::string lines = GetCapturedStderr();
  const std::size_t end = lines.find('\n');
  const auto first = parse_log_line(std::string_view(lines).substr(0, end));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->level, LogLevel::kError);
  EXPECT_EQ(first->source, "vector");
  EXPECT_EQ(first->text, "first [x] line");
  EXPECT_EQ(first->pid, ::getpid());
  const auto second =
      parse_log_line(std::string_view(lines).substr(end + 1, lines.size() - end - 2));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->text, "second");
}

TEST(Log, OtherOutputIsNoneOfItsLines) {
  for (const char* line :
       {"", "hello", "[2026-01-01 00:00:00.000] [shoal 1] [error] old", "[2 ] [shoal.", "[2",
        "[2026] [shoal.vector x] [error] a", "[2026] [shoal.vector 1] [nonsense] a",
        "[2026] [shoal.vector 1]", "[2026] [shoal.vector 99999999999] [error] a"}) {
    EXPECT_FALSE(parse_log_line(line)) << line;
  }
}

}  // namespace
}  // namespace shoal::os
