#include "shoal/os/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::ContainsRegex;

TEST(SystemError, SaysWhatWasAttemptedAndTheKernelsReason) {
  const SystemError error("create a memfd of 4096 bytes", ENOMEM);
  EXPECT_EQ(error.error_number(), ENOMEM);
  EXPECT_STREQ(error.what(),
               "cannot create a memfd of 4096 bytes: Cannot allocate memory (errno 12)");
}

TEST(SystemError, TakesErrnoByDefault) {
  errno = EBADF;
  EXPECT_EQ(SystemError("read").error_number(), EBADF);
}

TEST(SystemError, NamesTheLimitOfDescriptors) {
  EXPECT_THAT(SystemError("open a pipe", EMFILE).what(),
              ContainsRegex("Too many open files \\(errno 24; the limit, ulimit -n, is [0-9]+\\)"));
}

TEST(CheckDeathTest, AbortsWithReasonConditionAndPlace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int one = 1;
  SHOAL_CHECK(one == 1, "never said");
  EXPECT_DEATH(SHOAL_CHECK(one == 2, "a broken rule"), "bug: a broken rule .one == 2 .*error_test");
}

}  // namespace
}  // namespace shoal
