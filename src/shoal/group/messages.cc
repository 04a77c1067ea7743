#include "shoal/group/messages.h"

#include <bit>
#include <string_view>

#include "shoal/os/error.h"
#include "shoal/process/codec.h"

namespace shoal::group {
namespace {

using process::ByteReader;
using process::ByteWriter;
using Bytes = std::vector<std::byte>;

constexpr std::string_view kVersion = "shoal group 2";  // in each greeting and each seal

ByteWriter begin(MessageKind kind) {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(kind));
  return writer;
}

ByteReader open(std::span<const std::byte> message, MessageKind kind) {
  if (kind_of(message) != kind)
    throw Error("a message of another kind than was expected: the other end is no rank of Shoal's");
  return ByteReader(message.subspan(1));
}

void write(ByteWriter& writer, const std::vector<Member>& members) {
  writer.number(static_cast<std::uint32_t>(members.size()));
  for (const Member& member : members) {
    writer.number(std::int32_t{member.rank});
    writer.text(member.host);
    writer.number(std::int32_t{member.pid});
  }
}

std::vector<Member> read_members(ByteReader& reader) {
  std::vector<Member> members;
  for (auto left = reader.number<std::uint32_t>(); left > 0; --left) {
    const int rank = reader.number<std::int32_t>();
    std::string host = reader.text();
    members.push_back({rank, std::move(host), reader.number<std::int32_t>()});
  }
  return members;
}

}  // namespace

MessageKind kind_of(std::span<const std::byte> message) {
  if (message.empty()) throw Error("an empty message: the other end is no rank of Shoal's");
  return static_cast<MessageKind>(message[0]);
}

Bytes pack(MessageKind kind) { return begin(kind).take(); }

Bytes pack(const Challenge& challenge) {
  ByteWriter writer = begin(MessageKind::kChallenge);
  writer.text(kVersion);
  writer.bytes(challenge);
  return writer.take();
}

Challenge unpack_challenge(std::span<const std::byte> message) {
  ByteReader reader = open(message, MessageKind::kChallenge);
  if (reader.text() != kVersion) throw Error("the rank there is of another version of Shoal");
  return challenge_of(reader.bytes());
}

Bytes pack(const Greeting& greeting, const Challenge& against, const std::string& secret) {
  ByteWriter writer = begin(MessageKind::kGreeting);
  writer.text(greeting.attempt);
  for (const int number : {greeting.rank, greeting.size, greeting.local_rank})
    writer.number(std::int32_t{number});
  writer.number(static_cast<std::uint8_t>(greeting.for_data));
  write(writer, greeting.members);
  writer.bytes(greeting.challenge);
  writer.number(std::int32_t{greeting.port});
  return sealed(writer.take(), kVersion, against, secret);
}

Greeting unpack_greeting(std::span<const std::byte> message, const Challenge& against,
                         const std::string& secret) {
  ByteReader reader = open(unsealed(message, kVersion, against, secret), MessageKind::kGreeting);
  Greeting greeting;
  greeting.attempt = reader.text();
  for (int* number : {&greeting.rank, &greeting.size, &greeting.local_rank})
    *number = reader.number<std::int32_t>();
  greeting.for_data = reader.number<std::uint8_t>() != 0;
  greeting.members = read_members(reader);
  greeting.challenge = challenge_of(reader.bytes());
  greeting.port = reader.number<std::int32_t>();
  return greeting;
}

Bytes pack(const Welcome& welcome, const Challenge& against, const std::string& secret) {
  ByteWriter writer = begin(MessageKind::kWelcome);
  write(writer, welcome.members);
  writer.number(static_cast<std::uint32_t>(welcome.hosts.size()));
  for (const auto& ranks : welcome.hosts) {
    writer.number(static_cast<std::uint32_t>(ranks.size()));
    for (const int rank : ranks) writer.number(std::int32_t{rank});
  }
  writer.number(static_cast<std::uint32_t>(welcome.places.size()));
  for (const Place& place : welcome.places) {
    writer.text(place.address);
    writer.number(std::int32_t{place.port});
  }
  return sealed(writer.take(), kVersion, against, secret);
}

Welcome unpack_welcome(std::span<const std::byte> message, const Challenge& against,
                       const std::string& secret) {
  ByteReader reader = open(unsealed(message, kVersion, against, secret), MessageKind::kWelcome);
  Welcome welcome;
  welcome.members = read_members(reader);
  for (auto hosts = reader.number<std::uint32_t>(); hosts > 0; --hosts) {
    auto& ranks = welcome.hosts.emplace_back();
    for (auto left = reader.number<std::uint32_t>(); left > 0; --left)
      ranks.push_back(reader.number<std::int32_t>());
  }
  for (auto places = reader.number<std::uint32_t>(); places > 0; --places) {
    std::string address = reader.text();
    welcome.places.push_back({std::move(address), reader.number<std::int32_t>()});
  }
  return welcome;
}

Bytes pack_refusal(const std::string& why) {
  ByteWriter writer = begin(MessageKind::kRefused);
  writer.text(why);
  return writer.take();
}

std::string unpack_refusal(std::span<const std::byte> message) {
  return open(message, MessageKind::kRefused).text();
}

Bytes pack(const Loss& loss) {
  ByteWriter writer = begin(MessageKind::kLost);
  writer.number(std::int32_t{loss.rank});
  writer.text(loss.cause);
  writer.number(std::bit_cast<std::uint64_t>(loss.silent_seconds));
  return writer.take();
}

Loss unpack_loss(std::span<const std::byte> message) {
  ByteReader reader = open(message, MessageKind::kLost);
  const int rank = reader.number<std::int32_t>();
  std::string cause = reader.text();
  return {rank, std::move(cause), std::bit_cast<double>(reader.number<std::uint64_t>())};
}

Bytes pack_farewell(int rank) {
  ByteWriter writer = begin(MessageKind::kFarewell);
  writer.number(std::int32_t{rank});
  return writer.take();
}

int unpack_farewell(std::span<const std::byte> message) {
  return open(message, MessageKind::kFarewell).number<std::int32_t>();
}

Bytes pack(MessageKind kind, const Round& round) {
  ByteWriter writer = begin(kind);
  writer.number(round.number);
  writer.number(round.needed);
  return writer.take();
}

Round unpack_round(std::span<const std::byte> message, MessageKind kind) {
  ByteReader reader = open(message, kind);
  Round round;
  round.number = reader.number<std::uint64_t>();
  round.needed = reader.number<std::uint32_t>();
  return round;
}

}  // namespace shoal::group
