#include "shoal/os/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shoal/os/error.h"
#include "shoal/os/testing/child.h"

namespace shoal::os {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

Fd any() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(Fd, ClosesWhenItGoes) {
  int number = -1;
  {
    const Fd fd = any();
    number = fd.get();
    ASSERT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(Fd, MovesWithoutClosing) {
  Fd first = any();
  const int number = first.get();
  Fd second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(second.get(), number);
  EXPECT_TRUE(is_open(number));
}

TEST(Fd, AssignmentClosesWhatWasHeld) {
  Fd first = any(), second = any();
  const int old = first.get(), kept = second.get();
  first = std::move(second);
  EXPECT_FALSE(is_open(old));
  EXPECT_EQ(first.get(), kept);
}

TEST(Fd, ReleaseGivesTheDescriptorAway) {
  Fd fd = any();
  const int number = fd.release();
  EXPECT_FALSE(fd);
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(Fd, DuplicateIsASecondCloseOnExecDescriptor) {
  const Fd fd = any();
  const Fd copy = Fd::duplicate(fd.get());
  EXPECT_NE(copy.get(), fd.get());
  EXPECT_EQ(::fcntl(copy.get(), F_GETFD), FD_CLOEXEC);
}

TEST(Fd, DuplicateOfNothingThrows) {
  try {
    Fd::duplicate(-1);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EBADF);
  }
}

TEST(Fd, InheritableDescriptorsLoseCloseOnExec) {
  const Fd fd = any();
  set_inheritable(fd.get(), true);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD), 0);
  set_inheritable(fd.get(), false);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_THROW(set_inheritable(-1, true), SystemError);
}

TEST(Fd, StandardStreamsThatAreClosedBecomeDevNull) {
  testing::Child child([] {
    ::close(STDIN_FILENO);
    ::close(STDERR_FILENO);
    const int before = ::fcntl(STDOUT_FILENO, F_GETFD);
    open_standard_streams();
    struct stat null, in, errors;
    ::stat("/dev/null", &null);
    ::fstat(STDIN_FILENO, &in);
    ::fstat(STDERR_FILENO, &errors);
    const bool opened = in.st_rdev == null.st_rdev && errors.st_rdev == null.st_rdev &&
                        ::fcntl(STDIN_FILENO, F_GETFD) == 0 && ::fcntl(STDERR_FILENO, F_GETFD) == 0;
    return opened && ::fcntl(STDOUT_FILENO, F_GETFD) == before ? 0 : 1;
  });
  EXPECT_EQ(child.join(), ProcessEnd{});
}

}  // namespace
}  // namespace shoal::os
