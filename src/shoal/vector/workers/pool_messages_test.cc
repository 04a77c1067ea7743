#include "shoal/vector/workers/pool_messages.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "shoal/process/codec.h"
#include "shoal/process/error_report.h"
#include "shoal/vector/step/space_codec.h"

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
  std::string text, end;
  for (int i = 0; i < 10'000; ++i) {
    text += R"({"type": "Tuple", "spaces": [)";
    end += "]}";
  }
  process::ByteWriter writer;
  writer.text(text + end);
  const std::vector<std::byte> bytes = writer.take();
  process::ByteReader reader(bytes);
  EXPECT_THROW(get_space(reader), Error);
}

TEST(PoolMessages, ComeBackEqual) {
  for (auto kind = PoolKind::kJoin; kind <= PoolKind::kFaults;
       kind = static_cast<PoolKind>(static_cast<std::uint32_t>(kind) + 1)) {
    const PoolMessage decoded = PoolMessage::decode(PoolMessage{.kind = kind,
                                                                .session = 3,
                                                                .first = 40,
                                                                .count = 2,
                                                                .flag = true,
                                                                .sequence = 1ULL << 40,
                                                                .bytes = some_bytes()}
                                                        .encode());
    EXPECT_EQ(decoded.kind, kind);
    EXPECT_EQ(decoded.session, 3U);
    EXPECT_EQ(decoded.first, 40);
    EXPECT_EQ(decoded.count, 2);
    EXPECT_TRUE(decoded.flag);
    EXPECT_EQ(decoded.sequence, 1ULL << 40);
    EXPECT_EQ(decoded.bytes, some_bytes());
  }
}

TEST(PoolMessages, HelloComesBackEqual) {
  const Hello hello{everything(), env::Discrete{.n = 2}, some_bytes()};
  const Hello decoded = decode_hello(encode_hello(hello));
  EXPECT_EQ(decoded.observation_space, hello.observation_space);
  EXPECT_EQ(decoded.action_space, hello.action_space);
  EXPECT_EQ(decoded.extra, hello.extra);
  EXPECT_THROW(decode_hello(some_bytes()), Error);
}

TEST(PoolMessages, ReportsComeBackEqual) {
  process::ErrorReport report;
  report.type = "E";
  report.env_index = 7;
  const auto decoded = decode_reports(encode_reports(std::span(&report, 1)));
  ASSERT_EQ(decoded.size(), 1U);
  EXPECT_EQ(decoded[0].type, "E");
  EXPECT_EQ(decoded[0].env_index, 7);
  EXPECT_EQ(decode_reports(encode_reports({})).size(), 0U);
}

TEST(PoolMessages, WhatIsNoneIsRefused) {
  EXPECT_THROW(PoolMessage::decode(some_bytes()), Error);
  PoolMessage unknown{.kind = static_cast<PoolKind>(99), .bytes = {}};
  EXPECT_THROW(PoolMessage::decode(unknown.encode()), Error);
}

TEST(PoolMessages, AreNoErrorReports) {
  const PoolMessage message{.kind = PoolKind::kJoin, .bytes = {}};
  EXPECT_FALSE(process::ErrorReport::decode(message.encode()).has_value());
  process::ErrorReport report;
  report.type = "E";
  EXPECT_THROW(PoolMessage::decode(report.encode()), Error);
}

}  // namespace
}  // namespace shoal::vector
