#include "shoal/vector/messages.h"

#include <fmt/format.h>

#include "shoal/process/codec.h"
#include "shoal/vector/space_codec.h"

namespace shoal::vector {
namespace {

using process::ByteReader;
using process::ByteWriter;

constexpr std::uint32_t kMagic = 0x4d564853;  // "SHVM"
constexpr std::uint32_t kVersion = 1;

ByteWriter begin(MessageKind kind) {
  ByteWriter writer;
  writer.number(kMagic);
  writer.number(static_cast<std::uint32_t>(kind));
  return writer;
}

ByteReader body(std::span<const std::byte> message, MessageKind expected) {
  const MessageKind kind = kind_of(message);
  if (kind != expected) {
    throw Error(fmt::format("a message of kind {} came where kind {} was expected",
                            static_cast<std::uint32_t>(kind),
                            static_cast<std::uint32_t>(expected)));
  }
  return ByteReader(message.subspan(2 * sizeof(std::uint32_t)));
}

}  // namespace

MessageKind kind_of(std::span<const std::byte> message) {
  ByteReader reader(message);
  const auto magic = reader.number<std::uint32_t>();
  const auto kind = reader.number<std::uint32_t>();
  if (magic != kMagic || kind < static_cast<std::uint32_t>(MessageKind::kHello) ||
      kind > static_cast<std::uint32_t>(MessageKind::kClosed)) {
    throw Error("a message on a worker's channel is none of the vector layer's");
  }
  return static_cast<MessageKind>(kind);
}

std::vector<std::byte> encode_hello(const Hello& hello, int num_envs) {
  ByteWriter writer = begin(MessageKind::kHello);
  writer.number(kVersion);
  writer.number(static_cast<std::int32_t>(num_envs));
  put_space(writer, hello.observation_space);
  put_space(writer, hello.action_space);
  writer.bytes(hello.extra);
  return writer.take();
}

HelloMessage decode_hello(std::span<const std::byte> message) {
  ByteReader reader = body(message, MessageKind::kHello);
  const auto version = reader.number<std::uint32_t>();
  if (version != kVersion) {
    throw Error(fmt::format(
        "a worker's hello has version {}, this program knows version {}; parent and worker must be "
        "the same Shoal",
        version, kVersion));
  }
  HelloMessage hello;
  hello.num_envs = reader.number<std::int32_t>();
  hello.hello.observation_space = get_space(reader);
  hello.hello.action_space = get_space(reader);
  hello.hello.extra = reader.bytes();
  return hello;
}

std::vector<std::byte> encode_attach(const AttachMessage& attach) {
  ByteWriter writer = begin(MessageKind::kAttach);
  writer.number(static_cast<std::int32_t>(attach.cell));
  writer.number(static_cast<std::int32_t>(attach.first_env));
  writer.number(attach.sequence);
  writer.bytes(attach.handed);
  return writer.take();
}

AttachMessage decode_attach(std::span<const std::byte> message) {
  ByteReader reader = body(message, MessageKind::kAttach);
  AttachMessage attach;
  attach.cell = reader.number<std::int32_t>();
  attach.first_env = reader.number<std::int32_t>();
  attach.sequence = reader.number<std::uint64_t>();
  attach.handed = reader.bytes();
  return attach;
}

std::vector<std::byte> encode_bytes(MessageKind kind, std::uint64_t sequence,
                                    std::span<const std::byte> bytes) {
  ByteWriter writer = begin(kind);
  writer.number(sequence);
  writer.bytes(bytes);
  return writer.take();
}

BytesMessage decode_bytes(std::span<const std::byte> message) {
  BytesMessage decoded;
  decoded.kind = kind_of(message);
  if (decoded.kind < MessageKind::kRequest) {
    throw Error(fmt::format("a message of kind {} came where bytes were expected",
                            static_cast<std::uint32_t>(decoded.kind)));
  }
  ByteReader reader = body(message, decoded.kind);
  decoded.sequence = reader.number<std::uint64_t>();
  decoded.bytes = reader.bytes();
  return decoded;
}

std::vector<std::byte> encode_reports(std::span<const process::ErrorReport> reports) {
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(reports.size()));
  for (const process::ErrorReport& report : reports) writer.bytes(report.encode());
  return writer.take();
}

std::vector<process::ErrorReport> decode_reports(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
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
