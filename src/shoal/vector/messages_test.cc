#include "shoal/vector/messages.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "shoal/process/error_report.h"
#include "shoal/vector/space_codec.h"

namespace shoal::vector {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

env::Space everything() {
  env::Tuple tuple;
  tuple.spaces.emplace_back(env::Discrete{.n = 3, .start = -1, .dtype = shm::DType::kI32});
  tuple.spaces.emplace_back(env::MultiBinary{{2, 3}});
  env::Dict dict;
  dict.spaces.emplace_back(
      "box", env::Box{{shm::DType::kF32, {2}}, {-kInfinity, 0.1}, {kInfinity, 1e300}});
  dict.spaces.emplace_back("", env::MultiDiscrete{{3, 4}, {0, 7}, {2}, shm::DType::kI64});
  dict.spaces.emplace_back("tuple", std::move(tuple));
  dict.spaces.emplace_back("empty", env::Dict{});
  dict.spaces.emplace_back("opaque", env::Opaque{"module.Text", "Text(1, 5)"});
  return dict;
}

std::vector<std::byte> some_bytes() { return {std::byte{1}, std::byte{0}, std::byte{255}}; }

TEST(SpaceCodec, SpacesComeBackEqual) {
  process::ByteWriter writer;
  put_space(writer, everything());
  const std::vector<std::byte> bytes = writer.take();
  process::ByteReader reader(bytes);
  EXPECT_EQ(get_space(reader), everything());
  EXPECT_EQ(reader.left(), 0U);
}

TEST(SpaceCodec, BytesThatAreNoSpaceAreRefused) {
  process::ByteWriter writer;
  put_space(writer, everything());
  const std::vector<std::byte> bytes = writer.take();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<std::byte> cut(bytes.begin(),
                                     bytes.begin() + static_cast<std::ptrdiff_t>(length));
    process::ByteReader reader(cut);
    EXPECT_THROW(get_space(reader), Error) << "cut to " << length << " bytes";
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    process::ByteReader reader(damaged);
    try {
      get_space(reader);
    } catch (const Error&) {  // nothing worse than this
    }
  }
}

TEST(SpaceCodec, DepthIsBounded) {
  process::ByteWriter writer;
  for (int i = 0; i < 100'000; ++i) {
    writer.number(std::uint8_t{5});   // a Tuple …
    writer.number(std::uint64_t{1});  // … of one
  }
  const std::vector<std::byte> bytes = writer.take();
  process::ByteReader reader(bytes);
  EXPECT_THROW(get_space(reader), Error);
}

TEST(Messages, HelloComesBackEqual) {
  const Hello hello{everything(), env::Discrete{.n = 2}, some_bytes()};
  const HelloMessage decoded = decode_hello(encode_hello(hello, 17));
  EXPECT_EQ(decoded.num_envs, 17);
  EXPECT_EQ(decoded.hello.observation_space, hello.observation_space);
  EXPECT_EQ(decoded.hello.action_space, hello.action_space);
  EXPECT_EQ(decoded.hello.extra, hello.extra);
}

TEST(Messages, AttachComesBackEqual) {
  const AttachMessage decoded = decode_attach(encode_attach(
      {.cell = 3, .first_env = 40, .sequence = 1ULL << 40, .handed = {std::byte{7}}}));
  EXPECT_EQ(decoded.cell, 3);
  EXPECT_EQ(decoded.first_env, 40);
  EXPECT_EQ(decoded.sequence, 1ULL << 40);
}

TEST(Messages, BytesComeBackEqualWithTheirKind) {
  for (const auto kind : {MessageKind::kRequest, MessageKind::kReply, MessageKind::kRefusal,
                          MessageKind::kInfo, MessageKind::kFaults, MessageKind::kClosed}) {
    const BytesMessage decoded = decode_bytes(encode_bytes(kind, 9, some_bytes()));
    EXPECT_EQ(decoded.kind, kind);
    EXPECT_EQ(decoded.sequence, 9U);
    EXPECT_EQ(decoded.bytes, some_bytes());
  }
}

TEST(Messages, AnotherKindThanExpectedIsRefused) {
  EXPECT_THROW(decode_hello(encode_attach({})), Error);
  EXPECT_THROW(decode_attach(encode_bytes(MessageKind::kReply, 1, {})), Error);
  EXPECT_THROW(decode_bytes(encode_attach({})), Error);
  EXPECT_THROW(decode_bytes(some_bytes()), Error);
}

TEST(Messages, AreNoErrorReports) {
  EXPECT_FALSE(process::ErrorReport::decode(encode_attach({})).has_value());
  process::ErrorReport report;
  report.type = "E";
  EXPECT_THROW(kind_of(report.encode()), Error);
}

}  // namespace
}  // namespace shoal::vector
