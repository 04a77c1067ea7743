#include "shoal/os/memory/memfd.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "shoal/os/error.h"
#include "shoal/os/limits/limits.h"
#include "shoal/os/memory/mapping.h"
#include "shoal/os/testing/child.h"
#include "shoal/os/testing/message_of.h"

namespace shoal::os {
namespace {

using os::testing::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Memfd, IsNoStandardStream) {
  testing::Child child([] {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(stream);
    return Memfd::create("arena", 4096).fd() > STDERR_FILENO ? 0 : 1;
  });
  EXPECT_EQ(child.join(), ProcessEnd{});
}

TEST(Memfd, NobodyCanChangeItsSize) {
  const Memfd memfd = Memfd::create("arena", 8192);
  EXPECT_EQ(::ftruncate(memfd.fd(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(memfd.fd(), 16384), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(memfd.fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(memfd.bytes(), 8192u);
}

TEST(Memfd, IsClosedOnExec) {
  const Memfd memfd = Memfd::create("arena", 1);
  EXPECT_EQ(::fcntl(memfd.fd(), F_GETFD), FD_CLOEXEC);
}

TEST(Memfd, HasAllItsPagesFromTheBeginning) {
  const Memfd memfd = Memfd::create("arena", 1 << 20);
  struct stat status;
  ASSERT_EQ(::fstat(memfd.fd(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 1 << 20);
}

TEST(Memfd, IsZeroedAndWritable) {
  const Memfd memfd = Memfd::create("arena", 5000);
  const Mapping mapping = Mapping::map(memfd, "arena");
  EXPECT_THAT(mapping.span(), ::testing::Each(std::byte{0}));
  mapping.data()[4999] = std::byte{7};
}

TEST(Memfd, ShortMemoryIsAnErrorThatNamesTheArenaAndTheSize) {
  constexpr std::size_t kTooMuch = std::size_t{1} << 50;
  try {
    Memfd::create("rows of 64 environments", kTooMuch);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOMEM);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rows of 64 environments"),
                                    HasSubstr("1125899906842624 bytes"), HasSubstr("leaves")));
  }
}

TEST(Memfd, ASizeBeyondAnyFileIsAnError) {
  EXPECT_THAT(message_of([] { Memfd::create("arena", SIZE_MAX); }),
              HasSubstr("larger than any file"));
}

TEST(Memfd, TheFileSizeLimitIsAnErrorAndNoSignal) {
  testing::Child child([] {
    const rlimit limit{4096, 4096};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const std::string what = message_of([] { Memfd::create("arena", 8192); });
    return what.find("ulimit -f allows 4096 bytes") == std::string::npos ? 1 : 0;
  });
  EXPECT_EQ(child.join(), ProcessEnd{});
}

TEST(Memfd, ZeroBytesAreRefused) { EXPECT_THROW(Memfd::create("arena", 0), InvalidArgument); }

TEST(Memfd, ALongNameIsCut) { EXPECT_NO_THROW(Memfd::create(std::string(1000, 'n'), 1)); }

TEST(Memfd, ReadOnlyContentCannotBeWritten) {
  const std::string content = "payload";
  const Memfd memfd = Memfd::create_readonly("message", std::as_bytes(std::span(content)));
  EXPECT_EQ(::pwrite(memfd.fd(), "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_THROW(Mapping::map(memfd, "message"), SystemError);
  const Mapping mapping = Mapping::map(memfd, "message", Mapping::Access::kReadOnly);
  EXPECT_EQ(std::memcmp(mapping.data(), content.data(), content.size()), 0);
}

TEST(Memfd, ReadOnlyContentMayBeEmpty) {
  EXPECT_EQ(Memfd::create_readonly("message", {}).bytes(), 0u);
}

TEST(Memfd, OpenTakesASealedFile) {
  const Memfd memfd = Memfd::create("arena", 8192);
  EXPECT_EQ(Memfd::open(Fd::duplicate(memfd.fd())).bytes(), 8192u);
}

TEST(Memfd, OpenRefusesAFileThatCouldShrink) {
  Fd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  EXPECT_THAT(message_of([&] { Memfd::open(std::move(unsealed)); }), HasSubstr("not sealed"));
  // Shrinking alone is not enough: without F_SEAL_SEAL a peer could still seal it against our
  // writes.
  Fd half(::memfd_create("half", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::fcntl(half.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_THAT(message_of([&] { Memfd::open(std::move(half)); }), HasSubstr("not sealed"));
}

TEST(Memfd, OpenRefusesWhatIsNoMemfd) {
  EXPECT_THAT(message_of([] { Memfd::open(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC))); }),
              HasSubstr("no memfd"));
}

TEST(Mapping, OutlivesTheDescriptor) {
  Mapping mapping;
  {
    const Memfd memfd = Memfd::create("arena", 4096);
    mapping = Mapping::map(memfd, "arena");
  }
  mapping.data()[100] = std::byte{1};
  EXPECT_EQ(mapping.data()[100], std::byte{1});
}

TEST(Mapping, TwoMappingsOfAFileShareItsBytes) {
  const Memfd memfd = Memfd::create("arena", 4096);
  const Mapping one = Mapping::map(memfd, "arena"), two = Mapping::map(memfd, "arena");
  ASSERT_NE(one.data(), two.data());
  one.data()[17] = std::byte{42};
  EXPECT_EQ(two.data()[17], std::byte{42});
}

TEST(Mapping, AChildSeesWhatTheParentWrites) {
  const Memfd memfd = Memfd::create("arena", 4096);
  const Mapping mapping = Mapping::map(memfd, "arena");
  testing::Child child([&] {
    Mapping::map(memfd, "arena").data()[0] = std::byte{9};
    return 0;
  });
  ASSERT_EQ(child.join(), ProcessEnd{});
  EXPECT_EQ(mapping.data()[0], std::byte{9});
}

}  // namespace
}  // namespace shoal::os
