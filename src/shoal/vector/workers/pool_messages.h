// What a worker pool and its workers say to each other on their channel; orders and results go
// through shared memory.
//
// Each message: u32 magic "SHPO", u32 kind, u32 session, i32 first, i32 count, u8 flag, u64
// sequence, bytes, as process/codec.h writes them; what a kind does not name is 0 or empty.
//
//   pool -> worker   JOIN      flag: rounds (pool_worker.h); one descriptor: its door
//   pool -> worker   OPEN      first env, count of envs, bytes: payload
//   pool -> worker   ATTACH    first: the worker's index; flag: tolerant; sequence: of the last
//                              round that is none of its business; one descriptor: the session's
//                              segment; bytes: what the process before it handed over, or empty
//   pool -> worker   REQUEST   sequence, bytes
//   pool -> worker   TELL      bytes: as REQUEST, without an answer, before the orders that follow
//   pool -> worker   HAND_OVER sequence: asks for what Stepper::hand_over() says
//   pool -> worker   CLOSE     flag: CLOSED is to say what the environments raised
//   worker -> pool   HELLO     count of envs, flag: can_rebuild, bytes as encode_hello() makes them
//   worker -> pool   FAILED    bytes: an error report; the session is not open
//   worker -> pool   REPLY     sequence, bytes
//   worker -> pool   REFUSAL   sequence, bytes: an error report
//   worker -> pool   INFO      bytes: an info too large for its place; sequence: the round, or of
//                              single environments row << 32 | sequence
//   worker -> pool   FAULTS    sequence: the round in which environments failed, flag: and the
//                              others with them; bytes as encode_reports() makes them
//   worker -> pool   CLOSED    bytes as encode_reports() makes them
//
// A session is one vector environment of the pool's; JOIN is no session's. A worker that cannot go
// on sends an error report (process/error_report.h) in place of any message, and ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/process/error_report.h"
#include "shoal/vector/step/stepper.h"

namespace shoal::vector {

enum class PoolKind : std::uint32_t {
  kJoin = 1,
  kOpen,
  kAttach,
  kRequest,
  kClose,
  kHello,
  kFailed,
  kReply,
  kRefusal,
  kInfo,
  kClosed,
  kTell,
  kHandOver,
  kFaults,
};

/// Any of them; a value.
struct PoolMessage {
  PoolKind kind{};
  std::uint32_t session = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;
  bool flag = false;
  std::uint64_t sequence = 0;
  std::vector<std::byte> bytes;

  std::vector<std::byte> encode() const;
  /// Throws Error for what is none of them.
  static PoolMessage decode(std::span<const std::byte> message);
};

/// The bytes of HELLO.
std::vector<std::byte> encode_hello(const Hello& hello);
/// Throws Error for what encode_hello() of this version has not written.
Hello decode_hello(std::span<const std::byte> bytes);

/// The bytes of FAULTS and CLOSED.
std::vector<std::byte> encode_reports(std::span<const process::ErrorReport> reports);
std::vector<process::ErrorReport> decode_reports(std::span<const std::byte> bytes);

}  // namespace shoal::vector
