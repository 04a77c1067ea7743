// The messages over the sockets of a model service. Rows do not pass here; a client asks here once
// for each kind of row.
//
//   client ─ connects ▶ frontend ─ kAdmit + socket ▶ server of an instance
//   client ◀ kHello + segment, pidfd ─ server        (or: client ◀ kEndNotice ─ frontend)
//   client ─ kOpen ▶ server;  client ◀ kOpened + queue, slots ─ server  or  ◀ kRefused
//   client ─ kLeave ▶ server                         the client needs its slots no more
//   server ─ kReady + segment ▶ frontend
//   frontend ─ kCommand ▶ server ─ kAnswer ▶ frontend
//   anybody ─ kObserve ▶ frontend ─ kSegments + segments ▶ anybody
//
// Every message is its kind, followed by what the structure of the same name writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/serve/request_queue.h"
#include "shoal/serve/row_spec.h"

namespace shoal::serve {

enum class MessageKind : std::uint32_t {
  kHello = 0x53525601,
  kEndNotice,
  kOpen,
  kOpened,
  kRefused,
  kLeave,
  kAdmit,
  kReady,
  kCommand,
  kAnswer,
  kObserve,
  kSegments,
};

/// The kind of a message. Throws Error when it has none.
MessageKind kind_of(std::span<const std::byte> message);

struct Hello {
  std::vector<std::string> models;
  std::vector<std::byte> encode() const;
  static Hello decode(std::span<const std::byte> message);
};

/// The frontend's answer to a client that comes after the service's end: why it has ended.
struct EndNotice {
  std::string text;
  std::vector<std::byte> encode() const;
  static EndNotice decode(std::span<const std::byte> message);
};

/// Slots at the queue of this kind are wanted.
struct Open {
  RequestKind kind;
  std::uint32_t slots = 1;
  std::vector<std::byte> example;  // one row, its arrays one behind the other, unaligned
  std::vector<std::byte> encode() const;
  static Open decode(std::span<const std::byte> message);
};

struct Opened {
  RowSpec outputs;
  std::vector<std::byte> structure;  // of a reply, for the face above
  std::vector<std::byte> encode() const;
  static Opened decode(std::span<const std::byte> message);
};

enum class RefusalKind : std::uint32_t {
  kModelError,  // the model fails on the example; text is the message, then the traceback
  kInvalid,     // there is no such model or version, or too many queues
};

struct Refused {
  RefusalKind kind = RefusalKind::kInvalid;
  std::string message;
  std::string traceback;
  std::vector<std::byte> encode() const;
  static Refused decode(std::span<const std::byte> message);
};

struct Leave {
  std::uint32_t client_slots = 0;
  std::vector<std::byte> encode() const;
  static Leave decode(std::span<const std::byte> message);
};

std::vector<std::byte> encode_admit();
std::vector<std::byte> encode_observe();

/// Comes with the segments of all instances, also of those whose server has ended.
struct Segments {
  std::uint32_t running = 0;   // servers
  std::uint64_t restarts = 0;  // servers that took the place of another one
  std::vector<std::byte> encode() const;
  static Segments decode(std::span<const std::byte> message);
};

struct Ready {
  std::uint32_t instance = 0;
  std::vector<std::byte> encode() const;
  static Ready decode(std::span<const std::byte> message);
};

/// A command to the server, and its answer.
struct Command {
  std::uint64_t id = 0;
  std::vector<std::byte> bytes;
  std::uint32_t topic = 0;  // as of Frontend::command()
  std::vector<std::byte> encode(MessageKind kind) const;
  static Command decode(std::span<const std::byte> message);
};

}  // namespace shoal::serve
