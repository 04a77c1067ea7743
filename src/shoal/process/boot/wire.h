// The control protocol between a launcher and the program that it started (a zygote, or one spawned
// worker).
//
// It runs over a SOCK_SEQPACKET pair, one end of which is descriptor 3 of the program. Every packet
// (inside the frame of os/socket/socket.h) begins with the header; all numbers are little-endian;
// texts are u32 length and bytes.
//
//   0        4         6      8                16
//   | magic  | version | kind | request        | body …
//
//   kind         direction   body                                                  descriptors
//   kSetup       → program   u8 zygote, u8 hide_gpu, u8 plain,
//                            i32 threads, i32 parent_pid, u32 n,
//                            n × text preload, text bootstrap, text line         zygote: up, cells
//   kReady       ← zygote    i32 pid, i32 capacity                                 -
//   kSetupFailed ← program   an encoded ErrorReport                                -
//   kSubZygote   → zygote    text line                                             control, cells
//   kStart       → program   i32 index, i32 first_env, i32 num_envs, i32 slot,
//                            text name, text entry, text payload                   spawned: channel
//   kStarted     ← zygote    i32 pid                                               -
//   kStartFailed ← zygote    i32 errno, text attempt                               -
//   kOutput      ← zygote    u8 stream (1 or 2), text what was written             -
//   kKill        → zygote    i32 signal                                            -
//   kExited      ← zygote    i32 pid, i32 code, i32 signal                         -
//
// A zygote answers every kStart with kStarted or kStartFailed of the same request number, in order.
// kKill, kOutput and kExited carry the request number of the worker's kStart; kExited is the last
// word on it. kExited of request 0 tells of a sub-zygote, and is the last word of the zygote, which
// ends as well. `capacity` is how many workers a zygote can have at a time; beyond them the
// launcher has it fork a sub-zygote, another zygote with a control socket of its own, which says
// kReady there (or kStartFailed comes here). `line`, `up` and `cells` are those of
// process/zygote/channel_multiplexer.h.
//
// A spawned worker gets kSetup and one kStart (its stdout and stderr are in place) and answers
// nothing; its failures are ErrorReports on its channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/process/codec.h"

namespace shoal::process::wire {

inline constexpr int kControlFd = 3;
inline constexpr std::uint32_t kMagic = 0x5a4c4853;  // "SHLZ"
inline constexpr std::uint16_t kVersion = 4;

enum class Kind : std::uint16_t {
  kSetup = 1,
  kReady,
  kSetupFailed,
  kStart,
  kStarted,
  kStartFailed,
  kExited,
  kSubZygote,
  kOutput,
  kKill,
};

struct Setup {
  bool zygote = true;
  bool hide_gpu = true;
  bool plain = false;  // LaunchOptions::plain
  int threads = 1;
  int parent_pid = 0;
  std::vector<std::string> preload;
  std::vector<std::byte> bootstrap;
  std::string line;
};

struct Start {
  int index = -1;
  int first_env = -1;
  int num_envs = 0;
  int slot = 0;  // of the worker's cell
  std::string name;
  std::string entry;
  std::vector<std::byte> payload;
};

struct Ready {
  int pid = 0;
  int capacity = 0;
};

/// Borrows the bytes.
struct Output {
  int stream = 1;  // STDOUT_FILENO or STDERR_FILENO
  std::string_view bytes;
};

struct Exited {
  int pid = 0;
  int code = 0;
  int signal = 0;
};

/// A writer that holds the header.
ByteWriter begin(Kind kind, std::uint64_t request = 0);

struct Header {
  Kind kind;
  std::uint64_t request;
};
/// Reads the header. Throws Error for another magic or version.
Header read_header(ByteReader& reader);

std::vector<std::byte> encode(const Setup& setup);
Setup decode_setup(ByteReader& reader);
std::vector<std::byte> encode(const Start& start, std::uint64_t request);
Start decode_start(ByteReader& reader);
std::vector<std::byte> encode(const Ready& ready);
Ready decode_ready(ByteReader& reader);
std::vector<std::byte> encode(const Output& output, std::uint64_t request);
std::vector<std::byte> encode(const Exited& exited, std::uint64_t request);
Exited decode_exited(ByteReader& reader);

}  // namespace shoal::process::wire
