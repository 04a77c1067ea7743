#include "shoal/vector/pool_messages.h"

#include <fmt/format.h>

#include "shoal/os/error.h"
#include "shoal/process/codec.h"

namespace shoal::vector {
namespace {

constexpr std::uint32_t kMagic = 0x4f50'4853;  // "SHPO"

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
      kind > static_cast<std::uint32_t>(PoolKind::kHandOver)) {
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

}  // namespace shoal::vector
