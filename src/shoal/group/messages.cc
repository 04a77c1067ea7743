#include "shoal/group/messages.h"

#include <sys/random.h>

#include <bit>
#include <cstring>
#include <string_view>

#include "shoal/os/error.h"
#include "shoal/process/codec.h"

namespace shoal::group {
namespace {

using process::ByteReader;
using process::ByteWriter;
using Bytes = std::vector<std::byte>;

constexpr std::string_view kVersion = "shoal group 1";  // in each greeting and each seal
constexpr std::string_view kWrongSecret =
    "SHOAL_GROUP_SECRET is another there than here, or only one of the two has it";

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

Challenge challenge_in(std::span<const std::byte> bytes) {
  Challenge challenge;
  if (bytes.size() != challenge.size()) throw Error("a challenge of another length than ours");
  std::memcpy(challenge.data(), bytes.data(), challenge.size());
  return challenge;
}

Digest seal_of(std::span<const std::byte> body, const Challenge& against,
               const std::string& secret) {
  Bytes sealed(against.begin(), against.end());
  const auto version = std::as_bytes(std::span(kVersion));
  sealed.insert(sealed.end(), version.begin(), version.end());
  sealed.insert(sealed.end(), body.begin(), body.end());
  return hmac_sha256(std::as_bytes(std::span(secret)), sealed);
}

/// The message, with its seal at the end.
Bytes sealed(Bytes message, const Challenge& against, const std::string& secret) {
  const Digest seal = seal_of(message, against, secret);
  message.insert(message.end(), seal.begin(), seal.end());
  return message;
}

/// The message without its seal, which is right.
std::span<const std::byte> unsealed(std::span<const std::byte> message, const Challenge& against,
                                    const std::string& secret) {
  Digest seal;
  if (message.size() < seal.size()) throw Error("a message that is cut short");
  const auto body = message.first(message.size() - seal.size());
  std::memcpy(seal.data(), message.data() + body.size(), seal.size());
  if (!same_digest(seal, seal_of(body, against, secret))) throw Error(std::string(kWrongSecret));
  return body;
}

}  // namespace

Challenge make_challenge() {
  Challenge challenge;
  if (::getrandom(challenge.data(), challenge.size(), 0) != static_cast<ssize_t>(challenge.size()))
    throw SystemError("get random bytes to challenge a peer with");
  return challenge;
}

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
  return challenge_in(reader.bytes());
}

Bytes pack(const Greeting& greeting, const Challenge& against, const std::string& secret) {
  ByteWriter writer = begin(MessageKind::kGreeting);
  writer.text(greeting.attempt);
  for (const int number : {greeting.rank, greeting.size, greeting.local_rank})
    writer.number(std::int32_t{number});
  writer.number(static_cast<std::uint8_t>(greeting.for_data));
  write(writer, greeting.members);
  writer.bytes(greeting.challenge);
  return sealed(writer.take(), against, secret);
}

Greeting unpack_greeting(std::span<const std::byte> message, const Challenge& against,
                         const std::string& secret) {
  ByteReader reader = open(unsealed(message, against, secret), MessageKind::kGreeting);
  Greeting greeting;
  greeting.attempt = reader.text();
  for (int* number : {&greeting.rank, &greeting.size, &greeting.local_rank})
    *number = reader.number<std::int32_t>();
  greeting.for_data = reader.number<std::uint8_t>() != 0;
  greeting.members = read_members(reader);
  greeting.challenge = challenge_in(reader.bytes());
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
  return sealed(writer.take(), against, secret);
}

Welcome unpack_welcome(std::span<const std::byte> message, const Challenge& against,
                       const std::string& secret) {
  ByteReader reader = open(unsealed(message, against, secret), MessageKind::kWelcome);
  Welcome welcome;
  welcome.members = read_members(reader);
  for (auto hosts = reader.number<std::uint32_t>(); hosts > 0; --hosts) {
    auto& ranks = welcome.hosts.emplace_back();
    for (auto left = reader.number<std::uint32_t>(); left > 0; --left)
      ranks.push_back(reader.number<std::int32_t>());
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

}  // namespace shoal::group
