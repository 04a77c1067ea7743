#include "shoal/serve/messages.h"

#include "shoal/os/error.h"
#include "shoal/process/codec.h"

namespace shoal::serve {
namespace {

using process::ByteReader;
using process::ByteWriter;

ByteWriter begin(MessageKind kind) {
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(kind));
  return writer;
}

ByteReader open(std::span<const std::byte> message, MessageKind kind) {
  ByteReader reader(message);
  if (reader.number<std::uint32_t>() != static_cast<std::uint32_t>(kind)) {
    throw Error("the other side of a model service sent an unexpected message");
  }
  return reader;
}

}  // namespace

MessageKind kind_of(std::span<const std::byte> message) {
  const auto kind = static_cast<MessageKind>(ByteReader(message).number<std::uint32_t>());
  if (kind < MessageKind::kHello || kind > MessageKind::kSegments) {
    throw Error("a message of the model service is of another version of Shoal");
  }
  return kind;
}

std::vector<std::byte> Hello::encode() const {
  ByteWriter writer = begin(MessageKind::kHello);
  writer.number(static_cast<std::uint32_t>(models.size()));
  for (const std::string& model : models) writer.text(model);
  return writer.take();
}

Hello Hello::decode(std::span<const std::byte> message) {
  ByteReader reader = open(message, MessageKind::kHello);
  Hello hello;
  for (auto n = reader.number<std::uint32_t>(); n > 0; --n) hello.models.push_back(reader.text());
  return hello;
}

std::vector<std::byte> EndNotice::encode() const {
  ByteWriter writer = begin(MessageKind::kEndNotice);
  writer.text(text);
  return writer.take();
}

EndNotice EndNotice::decode(std::span<const std::byte> message) {
  return {open(message, MessageKind::kEndNotice).text()};
}

std::vector<std::byte> Open::encode() const {
  ByteWriter writer = begin(MessageKind::kOpen);
  writer.number(kind.model);
  writer.number(kind.pinned);
  write(writer, kind.inputs);
  writer.bytes(kind.structure);
  writer.number(slots);
  writer.bytes(example);
  return writer.take();
}

Open Open::decode(std::span<const std::byte> message) {
  ByteReader reader = open(message, MessageKind::kOpen);
  Open request;
  request.kind.model = reader.number<std::uint32_t>();
  request.kind.pinned = reader.number<std::uint64_t>();
  request.kind.inputs = read_row_spec(reader);
  request.kind.structure = reader.bytes();
  request.slots = reader.number<std::uint32_t>();
  request.example = reader.bytes();
  return request;
}

std::vector<std::byte> Opened::encode() const {
  ByteWriter writer = begin(MessageKind::kOpened);
  write(writer, outputs);
  writer.bytes(structure);
  return writer.take();
}

Opened Opened::decode(std::span<const std::byte> message) {
  ByteReader reader = open(message, MessageKind::kOpened);
  Opened opened;
  opened.outputs = read_row_spec(reader);
  opened.structure = reader.bytes();
  return opened;
}

std::vector<std::byte> Refused::encode() const {
  ByteWriter writer = begin(MessageKind::kRefused);
  writer.number(static_cast<std::uint32_t>(kind));
  writer.text(message);
  writer.text(traceback);
  return writer.take();
}

Refused Refused::decode(std::span<const std::byte> message) {
  ByteReader reader = open(message, MessageKind::kRefused);
  Refused refused;
  refused.kind = static_cast<RefusalKind>(reader.number<std::uint32_t>());
  refused.message = reader.text();
  refused.traceback = reader.text();
  return refused;
}

std::vector<std::byte> Leave::encode() const {
  ByteWriter writer = begin(MessageKind::kLeave);
  writer.number(client_slots);
  return writer.take();
}

Leave Leave::decode(std::span<const std::byte> message) {
  return {open(message, MessageKind::kLeave).number<std::uint32_t>()};
}

std::vector<std::byte> encode_admit() { return begin(MessageKind::kAdmit).take(); }
std::vector<std::byte> encode_observe() { return begin(MessageKind::kObserve).take(); }

std::vector<std::byte> Segments::encode() const {
  ByteWriter writer = begin(MessageKind::kSegments);
  writer.number(running);
  writer.number(restarts);
  return writer.take();
}

Segments Segments::decode(std::span<const std::byte> message) {
  ByteReader reader = open(message, MessageKind::kSegments);
  Segments segments;
  segments.running = reader.number<std::uint32_t>();
  segments.restarts = reader.number<std::uint64_t>();
  return segments;
}

std::vector<std::byte> Ready::encode() const {
  ByteWriter writer = begin(MessageKind::kReady);
  writer.number(instance);
  return writer.take();
}

Ready Ready::decode(std::span<const std::byte> message) {
  return {open(message, MessageKind::kReady).number<std::uint32_t>()};
}

std::vector<std::byte> Command::encode(MessageKind kind) const {
  ByteWriter writer = begin(kind);
  writer.number(id);
  writer.bytes(bytes);
  writer.number(topic);
  return writer.take();
}

Command Command::decode(std::span<const std::byte> message) {
  ByteReader reader(message);
  static_cast<void>(reader.number<std::uint32_t>());
  Command command;
  command.id = reader.number<std::uint64_t>();
  command.bytes = reader.bytes();
  command.topic = reader.number<std::uint32_t>();
  return command;
}

}  // namespace shoal::serve
