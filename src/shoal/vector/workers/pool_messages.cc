#include "shoal/vector/workers/pool_messages.h"

#include <fmt/format.h>

#include "shoal/os/error.h"
#include "shoal/process/codec.h"
#include "shoal/vector/step/space_codec.h"

namespace shoal::vector {
namespace {

constexpr std::uint32_t kMagic = 0x4f50'4853;  // "SHPO"
constexpr std::uint32_t kVersion = 2;

}  // namespace

std::vector<std::byte> PoolMessage::encode() const {
  process::ByteWriter writer;
  writer.number(kMagic);
  writer.number(static_cast<std::uint32_t>(kind));
  writer.number(session);
  writer.number(first);
  writer.number(count);
  writer.number(static_cast<std::uint8_t>(flag));
  writer.number(sequence);
  writer.bytes(bytes);
  return writer.take();
}

PoolMessage PoolMessage::decode(std::span<const std::byte> message) {
  process::ByteReader reader(message);
  PoolMessage decoded;
  const bool known = message.size() >= 8 && reader.number<std::uint32_t>() == kMagic;
  const auto kind = known ? reader.number<std::uint32_t>() : 0;
  if (kind < static_cast<std::uint32_t>(PoolKind::kJoin) ||
      kind > static_cast<std::uint32_t>(PoolKind::kFaults)) {
    throw Error(fmt::format("a message of {} bytes is none of a worker pool's", message.size()));
  }
  decoded.kind = static_cast<PoolKind>(kind);
  decoded.session = reader.number<std::uint32_t>();
  decoded.first = reader.number<std::int32_t>();
  decoded.count = reader.number<std::int32_t>();
  decoded.flag = reader.number<std::uint8_t>() != 0;
  decoded.sequence = reader.number<std::uint64_t>();
  decoded.bytes = reader.bytes();
  return decoded;
}

std::vector<std::byte> encode_hello(const Hello& hello) {
  process::ByteWriter writer;
  writer.number(kVersion);
  put_space(writer, hello.observation_space);
  put_space(writer, hello.action_space);
  writer.bytes(hello.extra);
  return writer.take();
}

Hello decode_hello(std::span<const std::byte> bytes) {
  process::ByteReader reader(bytes);
  const auto version = reader.number<std::uint32_t>();
  if (version != kVersion) {
    throw Error(fmt::format(
        "a worker's hello has version {}, this program knows version {}; parent and worker must be "
        "the same Shoal",
        version, kVersion));
  }
  Hello hello;
  hello.observation_space = get_space(reader);
  hello.action_space = get_space(reader);
  hello.extra = reader.bytes();
  return hello;
}

std::vector<std::byte> encode_reports(std::span<const process::ErrorReport> reports) {
  process::ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(reports.size()));
  for (const process::ErrorReport& report : reports) writer.bytes(report.encode());
  return writer.take();
}

std::vector<process::ErrorReport> decode_reports(std::span<const std::byte> bytes) {
  process::ByteReader reader(bytes);
  const auto count = reader.number<std::uint32_t>();
  std::vector<process::ErrorReport> reports;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto report = process::ErrorReport::decode(reader.bytes());
    if (!report) throw Error("a worker's message of faults holds something else");
    reports.push_back(*std::move(report));
  }
  return reports;
}

}  // namespace shoal::vector
