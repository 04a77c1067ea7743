// What parent and worker say to each other on their channel; all else goes through shared memory.
//
// Each message: u32 magic "SHVM", u32 kind, then the body, as process/codec.h writes it. An error
// report (process/error_report.h) may come instead of any message of the worker.
//
//   worker -> parent   HELLO    u32 version, i32 num_envs, observation space, action space, extra
//   parent -> worker   ATTACH   i32 cell, i32 first_env, u64 sequence, bytes; one descriptor: the
//                               arena. The bytes: what the worker before it handed over
//   parent -> worker   REQUEST  u64 sequence of its command, bytes
//   worker -> parent   REPLY    u64 sequence, bytes
//   worker -> parent   REFUSAL  u64 sequence, bytes       (in place of a reply: an error report)
//   worker -> parent   INFO     u64 sequence, bytes       (what does not fit into the info area)
//   worker -> parent   FAULTS   u64 sequence, bytes       (reports: u32 n, n times bytes)
//   worker -> parent   CLOSED   u64 sequence, bytes       (reports of what failed while it closed)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/process/error_report.h"
#include "shoal/vector/stepper.h"

namespace shoal::vector {

enum class MessageKind : std::uint32_t {
  kHello = 1,
  kAttach,
  kRequest,
  kReply,
  kRefusal,
  kInfo,
  kFaults,
  kClosed
};

/// The kind of a message. Throws Error when it is none of the above.
MessageKind kind_of(std::span<const std::byte> message);

struct HelloMessage {
  int num_envs = 0;
  Hello hello;
};
std::vector<std::byte> encode_hello(const Hello& hello, int num_envs);
HelloMessage decode_hello(std::span<const std::byte> message);

struct AttachMessage {
  int cell = 0;  // in the control block
  int first_env = 0;
  std::uint64_t sequence = 0;     // of the last command that is none of the worker's business
  std::vector<std::byte> handed;  // Stepper::hand_over() of the worker before it; may be empty
};
std::vector<std::byte> encode_attach(const AttachMessage& attach);
AttachMessage decode_attach(std::span<const std::byte> message);

/// REQUEST, REPLY, REFUSAL, INFO, FAULTS and CLOSED.
struct BytesMessage {
  MessageKind kind{};
  std::uint64_t sequence = 0;
  std::vector<std::byte> bytes;
};
std::vector<std::byte> encode_bytes(MessageKind kind, std::uint64_t sequence,
                                    std::span<const std::byte> bytes);
BytesMessage decode_bytes(std::span<const std::byte> message);

/// The bytes of FAULTS and CLOSED: the reports of the environments that failed in one command.
std::vector<std::byte> encode_reports(std::span<const process::ErrorReport> reports);
std::vector<process::ErrorReport> decode_reports(std::span<const std::byte> bytes);

}  // namespace shoal::vector
