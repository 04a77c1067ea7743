#include "shoal/process/boot/wire.h"

#include <gtest/gtest.h>

#include "shoal/os/error.h"

namespace shoal::process::wire {
namespace {

TEST(Wire, HeaderLiesAsDocumented) {
  const auto bytes = begin(Kind::kStart, 0x0102030405060708).take();
  const std::vector<std::byte> expected{
      std::byte{'S'}, std::byte{'H'}, std::byte{'L'}, std::byte{'Z'}, std::byte{4}, std::byte{0},
      std::byte{4},   std::byte{0},   std::byte{8},   std::byte{7},   std::byte{6}, std::byte{5},
      std::byte{4},   std::byte{3},   std::byte{2},   std::byte{1}};
  EXPECT_EQ(bytes, expected);
}

TEST(Wire, SetupArrivesAsItWasSent) {
  const wire::Setup sent{.zygote = false,
                         .hide_gpu = false,
                         .plain = true,
                         .threads = 3,
                         .parent_pid = 4711,
                         .preload = {"numpy", "gymnasium"},
                         .bootstrap = {std::byte{0}, std::byte{9}},
                         .line = "a name"};
  const auto bytes = encode(sent);
  ByteReader reader(bytes);
  EXPECT_EQ(read_header(reader).kind, Kind::kSetup);
  const wire::Setup received = decode_setup(reader);
  EXPECT_EQ(received.zygote, sent.zygote);
  EXPECT_EQ(received.hide_gpu, sent.hide_gpu);
  EXPECT_EQ(received.plain, sent.plain);
  EXPECT_EQ(received.threads, sent.threads);
  EXPECT_EQ(received.parent_pid, sent.parent_pid);
  EXPECT_EQ(received.preload, sent.preload);
  EXPECT_EQ(received.bootstrap, sent.bootstrap);
  EXPECT_EQ(received.line, sent.line);
  EXPECT_EQ(reader.left(), 0u);
}

TEST(Wire, StartArrivesAsItWasSent) {
  const Start sent{.index = 3,
                   .first_env = 24,
                   .num_envs = 8,
                   .slot = 200,
                   .name = "worker 3",
                   .entry = "python",
                   .payload = {std::byte{1}}};
  const auto bytes = encode(sent, 42);
  ByteReader reader(bytes);
  EXPECT_EQ(read_header(reader).request, 42u);
  const Start received = decode_start(reader);
  EXPECT_EQ(received.index, sent.index);
  EXPECT_EQ(received.first_env, sent.first_env);
  EXPECT_EQ(received.num_envs, sent.num_envs);
  EXPECT_EQ(received.slot, sent.slot);
  EXPECT_EQ(received.name, sent.name);
  EXPECT_EQ(received.entry, sent.entry);
  EXPECT_EQ(received.payload, sent.payload);
}

TEST(Wire, ExitedArrivesAsItWasSent) {
  const auto bytes = encode(Exited{.pid = 5, .code = 0, .signal = 9}, 7);
  ByteReader reader(bytes);
  EXPECT_EQ(read_header(reader).request, 7u);
  const Exited received = decode_exited(reader);
  EXPECT_EQ(received.pid, 5);
  EXPECT_EQ(received.code, 0);
  EXPECT_EQ(received.signal, 9);
}

TEST(Wire, AnotherVersionIsRefused) {
  auto bytes = begin(Kind::kReady).take();
  bytes[4] = std::byte{99};
  ByteReader reader(bytes);
  EXPECT_THROW(read_header(reader), Error);
}

TEST(Wire, AMessageThatEndsTooSoonIsRefused) {
  const auto bytes = encode(Start{.name = "worker 0", .entry = "echo", .payload = {}}, 1);
  for (std::size_t length = 16; length < bytes.size(); ++length) {
    ByteReader reader{std::span(bytes).first(length)};
    read_header(reader);
    EXPECT_THROW(decode_start(reader), Error) << length;
  }
}

}  // namespace
}  // namespace shoal::process::wire
