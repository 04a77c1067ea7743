#include "shoal/shm/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "shoal/os/socket/socket.h"
#include "shoal/os/testing/child.h"
#include "shoal/os/testing/message_of.h"

namespace shoal::shm {
namespace {

using os::Fd;
using os::ProcessEnd;
using os::testing::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A sealed file whose first bytes are `header`.
Fd file_with(const ArenaHeader& header, std::size_t bytes) {
  os::Memfd memfd = os::Memfd::create("forged", bytes);
  EXPECT_EQ(::pwrite(memfd.fd(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  return memfd.release();
}

ArenaHeader header_of(const Arena& arena) {
  ArenaHeader header;
  EXPECT_EQ(::pread(arena.fd(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  return header;
}

TEST(Arena, IsZeroedAlignedAndAsLargeAsAskedFor) {
  const Arena arena = Arena::create("rows", 10'000);
  EXPECT_EQ(arena.size(), 10'000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.base()) % 4096, 0u);
  EXPECT_THAT(std::vector<std::byte>(arena.base(), arena.base() + arena.size()),
              ::testing::Each(std::byte{0}));
}

TEST(Arena, SaysWhatItIsInItsFirstBytes) {
  const Arena arena = Arena::create("rows", 10'000);
  const ArenaHeader header = header_of(arena);
  EXPECT_EQ(std::memcmp(header.magic, "SHOALARN", 8), 0);
  EXPECT_EQ(header.version, kArenaVersion);
  EXPECT_EQ(header.header_bytes, kArenaHeaderBytes);
  EXPECT_EQ(header.data_bytes, 10'000u);
  EXPECT_STREQ(header.name, "rows");
}

TEST(Arena, TwoProcessesShareItsBytesAtTheirOwnAddresses) {
  const Arena arena = Arena::create("rows", 4096);
  auto [left, right] = os::SeqPacket::pair();
  os::testing::Child child([socket = &right, ours = arena.base()] {
    os::Message message;
    if (socket->recv(message, os::testing::test_deadline()) != os::RecvOutcome::kMessage) return 2;
    const Arena received = Arena::attach(std::move(message.fds.at(0)));
    if (received.base() == ours || received.name() != "rows") return 3;
    *received.at<std::uint64_t>(8) = 42;
    return 0;
  });
  const int fds[] = {arena.fd()};
  ASSERT_EQ(left.send({}, fds), os::SendOutcome::kSent);
  ASSERT_EQ(child.join(), ProcessEnd{});
  EXPECT_EQ(*arena.at<std::uint64_t>(8), 42u);
}

TEST(Arena, OutlivesTheProcessThatMadeIt) {
  auto [left, right] = os::SeqPacket::pair();
  os::testing::Child maker([socket = &right] {
    const Arena arena = Arena::create("rows", 4096);
    *arena.at<int>(0) = 7;
    const int fds[] = {arena.fd()};
    return socket->send({}, fds) == os::SendOutcome::kSent ? ::pause() : 1;
  });
  os::Message message;
  ASSERT_EQ(left.recv(message, os::testing::test_deadline()), os::RecvOutcome::kMessage);
  maker.kill();
  const Arena arena = Arena::attach(std::move(message.fds.at(0)));
  EXPECT_EQ(*arena.at<int>(0), 7);
}

TEST(Arena, StaysMappedWithoutItsDescriptor) {
  Arena arena = Arena::create("rows", 4096);
  arena.close_fd();
  EXPECT_EQ(arena.fd(), -1);
  *arena.at<int>(0) = 1;
  EXPECT_TRUE(arena);
}

TEST(Arena, ShortMemoryIsAnErrorThatNamesIt) {
  EXPECT_THAT(message_of([] { Arena::create("images of 64 environments", std::size_t{1} << 50); }),
              AllOf(HasSubstr("images of 64 environments"), HasSubstr("bytes")));
}

TEST(Arena, SizesThatCannotBeThrow) {
  EXPECT_THROW(Arena::create("rows", 0), InvalidArgument);
  EXPECT_THROW(Arena::create("rows", SIZE_MAX), InvalidArgument);
  EXPECT_THROW(Arena::create("rows", SIZE_MAX - kArenaHeaderBytes), Error);
}

TEST(Arena, ALongNameIsCutInItsHeaderOnly) {
  const Arena arena = Arena::create(std::string(100, 'n'), 1);
  EXPECT_EQ(std::string(header_of(arena).name), std::string(39, 'n'));
  EXPECT_EQ(arena.name(), std::string(100, 'n'));
}

TEST(Arena, ANameThatFillsItsFieldIsReadWhole) {
  const Arena arena = Arena::create(std::string(39, 'n'), 1);
  EXPECT_EQ(Arena::attach(os::Fd::duplicate(arena.fd())).name(), std::string(39, 'n'));
}

TEST(Arena, ANameWithoutItsEndIsReadNoFurtherThanItsField) {
  ArenaHeader header = header_of(Arena::create("rows", 4096));
  std::memset(header.name, 'n', sizeof header.name);
  const std::size_t bytes = kArenaHeaderBytes + 4096;
  EXPECT_EQ(Arena::attach(file_with(header, bytes)).name(), std::string(39, 'n'));
  header.version = kArenaVersion + 1;
  EXPECT_THAT(message_of([&] { Arena::attach(file_with(header, bytes)); }),
              HasSubstr(fmt::format("\"{}\"", std::string(39, 'n'))));
}

TEST(Arena, AttachRefusesWhatIsNoArena) {
  ArenaHeader header = header_of(Arena::create("rows", 4096));
  const std::size_t bytes = kArenaHeaderBytes + 4096;
  EXPECT_NO_THROW(Arena::attach(file_with(header, bytes)));

  ArenaHeader wrong = header;
  wrong.magic[0] = 'X';
  EXPECT_THAT(message_of([&] { Arena::attach(file_with(wrong, bytes)); }), HasSubstr("SHOALARN"));

  wrong = header;
  wrong.version = kArenaVersion + 1;
  EXPECT_THAT(message_of([&] { Arena::attach(file_with(wrong, bytes)); }),
              AllOf(HasSubstr("\"rows\""), HasSubstr("of version 2")));

  wrong = header;
  wrong.data_bytes = 1 << 20;
  EXPECT_THAT(message_of([&] { Arena::attach(file_with(wrong, bytes)); }), HasSubstr("1048576"));

  wrong = header;
  wrong.header_bytes = 64;
  EXPECT_THROW(Arena::attach(file_with(wrong, bytes)), Error);

  EXPECT_THAT(message_of([&] { Arena::attach(file_with(header, 100)); }), HasSubstr("100 bytes"));
}

TEST(Arena, AttachRefusesAFileThatCouldShrink) {
  Fd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 8192), 0);
  EXPECT_THAT(message_of([&] { Arena::attach(std::move(unsealed)); }), HasSubstr("not sealed"));
}

TEST(ArenaDeathTest, AnOffsetOutsideIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Arena arena = Arena::create("rows", 4096);
  EXPECT_NE(arena.at<std::uint64_t>(4088), nullptr);
  EXPECT_NE(arena.at<std::uint64_t>(4096, 0), nullptr);
  EXPECT_DEATH(arena.at<std::uint64_t>(4096), "an offset outside its arena");
  EXPECT_DEATH(arena.at<std::uint64_t>(0, 513), "an offset outside its arena");
  EXPECT_DEATH(arena.at<std::uint64_t>(4, 1), "an offset outside its arena");
  EXPECT_DEATH(arena.at<std::uint64_t>(SIZE_MAX - 7), "an offset outside its arena");
}

}  // namespace
}  // namespace shoal::shm
