#include "shoal/group/connection/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "shoal/os/error.h"
#include "shoal/process/codec.h"

namespace shoal::group {
namespace {

using process::ByteReader;
using process::ByteWriter;

constexpr std::string_view kHelloVersion = "shoal connection 1";  // in the challenge and each seal

ByteWriter begin_hello(HelloKind kind) {
  ByteWriter writer;
  writer.number(static_cast<std::uint8_t>(kind));
  return writer;
}

ByteReader open_hello(std::span<const std::byte> message, HelloKind kind) {
  if (kind_byte_of(message) != static_cast<std::uint8_t>(kind))
    throw Error("a message of another kind than was expected: another program speaks there");
  return ByteReader(message.subspan(1));
}

}  // namespace

std::uint8_t kind_byte_of(std::span<const std::byte> message) {
  if (message.empty()) throw Error("an empty message: another program speaks there");
  return std::to_integer<std::uint8_t>(message[0]);
}

std::vector<std::byte> pack_hello_challenge(const Challenge& challenge) {
  ByteWriter writer = begin_hello(HelloKind::kChallenge);
  writer.text(kHelloVersion);
  writer.bytes(challenge);
  return writer.take();
}

Challenge unpack_hello_challenge(std::span<const std::byte> message) {
  ByteReader reader = open_hello(message, HelloKind::kChallenge);
  if (const std::string version = reader.text(); version != kHelloVersion)
    throw Error(
        fmt::format("the program there speaks '{}', this one '{}': the two run different "
                    "versions of Shoal",
                    version, kHelloVersion));
  return challenge_of(reader.bytes());
}

std::vector<std::byte> pack(const Hello& hello, const Challenge& against,
                            const std::string& secret) {
  ByteWriter writer = begin_hello(HelloKind::kHello);
  for (const std::string* text : {&hello.version, &hello.purpose, &hello.run, &hello.host})
    writer.text(*text);
  writer.number(std::int32_t{hello.pid});
  writer.bytes(hello.challenge);
  return sealed(writer.take(), kHelloVersion, against, secret);
}

Hello unpack_hello(std::span<const std::byte> message, const Challenge& against,
                   const std::string& secret) {
  ByteReader reader =
      open_hello(unsealed(message, kHelloVersion, against, secret), HelloKind::kHello);
  Hello hello;
  for (std::string* text : {&hello.version, &hello.purpose, &hello.run, &hello.host})
    *text = reader.text();
  // They are shown: in messages, and as text in Python.
  for (const std::string* text : {&hello.version, &hello.purpose, &hello.host})
    if (!std::ranges::all_of(*text, [](char c) { return c >= ' ' && c <= '~'; }))
      throw Error("a greeting whose words are no text");
  hello.pid = reader.number<std::int32_t>();
  hello.challenge = challenge_of(reader.bytes());
  return hello;
}

std::vector<std::byte> pack(const Admission& admission, const Challenge& against,
                            const std::string& secret) {
  ByteWriter writer = begin_hello(HelloKind::kWelcome);
  writer.text(admission.host);
  writer.number(std::int32_t{admission.pid});
  writer.bytes(admission.content);
  return sealed(writer.take(), kHelloVersion, against, secret);
}

Admission unpack_admission(std::span<const std::byte> message, const Challenge& against,
                           const std::string& secret) {
  ByteReader reader =
      open_hello(unsealed(message, kHelloVersion, against, secret), HelloKind::kWelcome);
  Admission admission;
  admission.host = reader.text();
  admission.pid = reader.number<std::int32_t>();
  admission.content = reader.bytes();
  return admission;
}

std::vector<std::byte> pack_hello_refusal(const std::string& why) {
  ByteWriter writer = begin_hello(HelloKind::kRefused);
  writer.text(why);
  return writer.take();
}

std::string unpack_hello_refusal(std::span<const std::byte> message) {
  return open_hello(message, HelloKind::kRefused).text();
}

std::vector<std::byte> pack_heartbeat() { return begin_hello(HelloKind::kHeartbeat).take(); }

std::vector<std::byte> pack(const Farewell& farewell) {
  ByteWriter writer = begin_hello(HelloKind::kFarewell);
  writer.text(farewell.why);
  writer.number(static_cast<std::uint8_t>(farewell.final));
  return writer.take();
}

Farewell unpack_hello_farewell(std::span<const std::byte> message) {
  ByteReader reader = open_hello(message, HelloKind::kFarewell);
  std::string why = reader.text();
  return {std::move(why), reader.number<std::uint8_t>() != 0};
}

}  // namespace shoal::group
