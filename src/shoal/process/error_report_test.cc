#include "shoal/process/error_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>

namespace shoal::process {
namespace {

using ::testing::HasSubstr;

ErrorReport full_report() {
  ErrorReport report;
  report.type = "my.module.Crash";
  report.message = "the pole fell";
  report.traceback = "Traceback (most recent call last):\n  …\n";
  report.env_index = 17;
  report.code = ENOENT;
  report.last_seed = 1234567890123456789u;
  report.last_action = "[0.5, 1.0]";
  report.extra = {std::byte{1}, std::byte{0}, std::byte{255}};
  return report;
}

TEST(ErrorReport, ArrivesAsItWasSent) {
  const ErrorReport sent = full_report();
  const auto received = ErrorReport::decode(sent.encode());
  ASSERT_TRUE(received);
  EXPECT_EQ(received->type, sent.type);
  EXPECT_EQ(received->message, sent.message);
  EXPECT_EQ(received->traceback, sent.traceback);
  EXPECT_EQ(received->env_index, sent.env_index);
  EXPECT_EQ(received->code, sent.code);
  EXPECT_EQ(received->last_seed, sent.last_seed);
  EXPECT_EQ(received->last_action, sent.last_action);
  EXPECT_EQ(received->extra, sent.extra);
}

TEST(ErrorReport, AbsentSeedStaysAbsent) {
  ErrorReport sent = full_report();
  sent.last_seed.reset();
  EXPECT_FALSE(ErrorReport::decode(sent.encode())->last_seed);
}

TEST(ErrorReport, TheLastNumberOfAStepIsASteps) {
  ErrorReport report = full_report();
  report.episode_step = INT32_MAX;
  EXPECT_THAT(report.describe(), HasSubstr("step 2147483648 of its episode"));
}

TEST(ErrorReport, OtherMessagesAreNotReports) {
  EXPECT_FALSE(ErrorReport::decode({}));
  const std::string text = "hello, this is another message";
  EXPECT_FALSE(ErrorReport::decode(std::as_bytes(std::span(text))));
}

TEST(ErrorReport, EveryShortenedReportIsAnErrorAndNothingElse) {
  const auto bytes = full_report().encode();
  for (std::size_t length = 4; length < bytes.size(); ++length) {
    EXPECT_THROW(ErrorReport::decode(std::span(bytes).first(length)), Error) << length;
  }
}

TEST(ErrorReport, LongTextsAreShortenedInTheMiddle) {
  ErrorReport sent;
  sent.traceback = "first " + std::string(1 << 20, '.') + " last";
  const auto received = ErrorReport::decode(sent.encode());
  EXPECT_LT(received->traceback.size(), 100'000u);
  EXPECT_THAT(received->traceback, ::testing::StartsWith("first "));
  EXPECT_THAT(received->traceback, ::testing::EndsWith(" last"));
}

TEST(ErrorReport, NamesTypeAndTextOfTheCurrentException) {
  try {
    throw std::out_of_range("row 9");
  } catch (...) {
    const ErrorReport report = ErrorReport::from_current_exception();
    EXPECT_EQ(report.type, "std::out_of_range");
    EXPECT_EQ(report.message, "row 9");
  }
}

TEST(ErrorReport, KeepsTheErrnoOfASystemError) {
  try {
    throw SystemError("open a door", EACCES);
  } catch (...) {
    const ErrorReport report = ErrorReport::from_current_exception();
    EXPECT_EQ(report.code, EACCES);
    EXPECT_THAT(report.message, HasSubstr("open a door"));
  }
}

TEST(ErrorReport, PassesOnARemoteErrorUnchanged) {
  try {
    throw RemoteError("worker 1", full_report());
  } catch (...) {
    EXPECT_EQ(ErrorReport::from_current_exception().type, "my.module.Crash");
  }
}

TEST(ErrorReport, DescribesItselfForTheParent) {
  const RemoteError error("worker 1", full_report());
  for (const char* expected : {"worker 1", "my.module.Crash: the pole fell", "environment 17",
                               "1234567890123456789", "[0.5, 1.0]", "Traceback"}) {
    EXPECT_THAT(error.what(), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace shoal::process
