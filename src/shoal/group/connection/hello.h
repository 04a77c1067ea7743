// What the two ends of a connection between programs say before and around their own messages: who
// they are, that they know the secret, that they are still there, that they leave.
//
//   byte 0   kind; from kFirstOfOwn on it is a message of whoever uses the connection
//   then     fields as process::ByteWriter writes them
//
//   server                         client
//   challenge ───────────────────▶
//             ◀─────────────────── hello, sealed over it
//   welcome, sealed over hello's ▶
//   own messages, heartbeats, farewells in both directions
//
// Threads: values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/group/member.h"
#include "shoal/group/seal.h"

namespace shoal::group {

enum class HelloKind : std::uint8_t {
  kChallenge = 1,
  kHello,
  kWelcome,
  kRefused,    // why
  kHeartbeat,  // each kBeat
  kFarewell,   // it leaves, as it should
};
inline constexpr std::uint8_t kFirstOfOwn = 16;

inline constexpr std::chrono::milliseconds kBeat{500};
/// Who says nothing for so long counts as lost.
inline constexpr std::chrono::milliseconds kLongestSilence{3'500};

/// Who comes.
struct Hello {
  std::string version;    // of Shoal
  std::string purpose;    // "collect": what the connection is for
  std::string run;        // that it belongs to; empty: whichever it finds
  std::string host;       // the name of its machine
  int pid = 0;            // there
  Challenge challenge{};  // for the welcome
};

/// What who came is told.
struct Admission {
  std::string host;  // of the server
  int pid = 0;
  std::vector<std::byte> content;  // for the purpose
};

struct Farewell {
  std::string why;     // reads as in "the run has ended"
  bool final = false;  // a server's: it does not come back; a client's: nothing has gone wrong
};

/// The kind of a message. Throws Error for an empty one.
std::uint8_t kind_byte_of(std::span<const std::byte> message);

std::vector<std::byte> pack_hello_challenge(const Challenge& challenge);
/// Sealed over what the other side challenged with; the secret may be empty.
std::vector<std::byte> pack(const Hello& hello, const Challenge& against,
                            const std::string& secret);
std::vector<std::byte> pack(const Admission& admission, const Challenge& against,
                            const std::string& secret);
std::vector<std::byte> pack_hello_refusal(const std::string& why);
std::vector<std::byte> pack_heartbeat();
std::vector<std::byte> pack(const Farewell& farewell);

// The inverse; each throws Error for another kind, one that is cut short, or a seal of another
// secret.

Challenge unpack_hello_challenge(std::span<const std::byte> message);
Hello unpack_hello(std::span<const std::byte> message, const Challenge& against,
                   const std::string& secret);
Admission unpack_admission(std::span<const std::byte> message, const Challenge& against,
                           const std::string& secret);
std::string unpack_hello_refusal(std::span<const std::byte> message);
Farewell unpack_hello_farewell(std::span<const std::byte> message);

}  // namespace shoal::group
