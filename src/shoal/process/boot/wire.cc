#include "shoal/process/boot/wire.h"

#include <fmt/format.h>

namespace shoal::process::wire {

ByteWriter begin(Kind kind, std::uint64_t request) {
  ByteWriter writer;
  writer.number(kMagic);
  writer.number(kVersion);
  writer.number(static_cast<std::uint16_t>(kind));
  writer.number(request);
  return writer;
}

Header read_header(ByteReader& reader) {
  const auto magic = reader.number<std::uint32_t>();
  const auto version = reader.number<std::uint16_t>();
  if (magic != kMagic || version != kVersion) {
    throw Error(
        fmt::format("a control message has magic {:#x} and version {}, but this process speaks "
                    "{:#x} and {}: launcher and "
                    "started program come from different installations of Shoal",
                    magic, version, kMagic, kVersion));
  }
  const auto kind = reader.number<std::uint16_t>();
  return {static_cast<Kind>(kind), reader.number<std::uint64_t>()};
}

std::vector<std::byte> encode(const Setup& setup) {
  ByteWriter writer = begin(Kind::kSetup);
  writer.number(static_cast<std::uint8_t>(setup.zygote));
  writer.number(static_cast<std::uint8_t>(setup.hide_gpu));
  writer.number(static_cast<std::uint8_t>(setup.plain));
  writer.number(static_cast<std::int32_t>(setup.threads));
  writer.number(static_cast<std::int32_t>(setup.parent_pid));
  writer.number(static_cast<std::uint32_t>(setup.preload.size()));
  for (const std::string& name : setup.preload) writer.text(name);
  writer.bytes(setup.bootstrap);
  writer.text(setup.line);
  return writer.take();
}

Setup decode_setup(ByteReader& reader) {
  Setup setup;
  setup.zygote = reader.number<std::uint8_t>() != 0;
  setup.hide_gpu = reader.number<std::uint8_t>() != 0;
  setup.plain = reader.number<std::uint8_t>() != 0;
  setup.threads = reader.number<std::int32_t>();
  setup.parent_pid = reader.number<std::int32_t>();
  const auto count = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count; ++i) setup.preload.push_back(reader.text());
  setup.bootstrap = reader.bytes();
  setup.line = reader.text();
  return setup;
}

std::vector<std::byte> encode(const Start& start, std::uint64_t request) {
  ByteWriter writer = begin(Kind::kStart, request);
  writer.number(static_cast<std::int32_t>(start.index));
  writer.number(static_cast<std::int32_t>(start.first_env));
  writer.number(static_cast<std::int32_t>(start.num_envs));
  writer.number(static_cast<std::int32_t>(start.slot));
  writer.text(start.name);
  writer.text(start.entry);
  writer.bytes(start.payload);
  return writer.take();
}

Start decode_start(ByteReader& reader) {
  Start start;
  start.index = reader.number<std::int32_t>();
  start.first_env = reader.number<std::int32_t>();
  start.num_envs = reader.number<std::int32_t>();
  start.slot = reader.number<std::int32_t>();
  start.name = reader.text();
  start.entry = reader.text();
  start.payload = reader.bytes();
  return start;
}

std::vector<std::byte> encode(const Ready& ready) {
  ByteWriter writer = begin(Kind::kReady);
  writer.number(static_cast<std::int32_t>(ready.pid));
  writer.number(static_cast<std::int32_t>(ready.capacity));
  return writer.take();
}

Ready decode_ready(ByteReader& reader) {
  Ready ready;
  ready.pid = reader.number<std::int32_t>();
  ready.capacity = reader.number<std::int32_t>();
  return ready;
}

std::vector<std::byte> encode(const Output& output, std::uint64_t request) {
  ByteWriter writer = begin(Kind::kOutput, request);
  writer.number(static_cast<std::uint8_t>(output.stream));
  writer.text(output.bytes);
  return writer.take();
}

std::vector<std::byte> encode(const Exited& exited, std::uint64_t request) {
  ByteWriter writer = begin(Kind::kExited, request);
  writer.number(static_cast<std::int32_t>(exited.pid));
  writer.number(static_cast<std::int32_t>(exited.code));
  writer.number(static_cast<std::int32_t>(exited.signal));
  return writer.take();
}

Exited decode_exited(ByteReader& reader) {
  Exited exited;
  exited.pid = reader.number<std::int32_t>();
  exited.code = reader.number<std::int32_t>();
  exited.signal = reader.number<std::int32_t>();
  return exited;
}

}  // namespace shoal::process::wire
