// What ranks say to each other beside their data: the rendezvous (challenge, greeting, admission or
// refusal, welcome), then heartbeats, losses and farewells.
//
//   byte 0   kind
//   then     fields as process::ByteWriter writes them
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/group/member.h"
#include "shoal/group/seal.h"

namespace shoal::group {

enum class MessageKind : std::uint8_t {
  kChallenge = 1,  // by TCP, from who accepted: random bytes
  kGreeting,       // who comes
  kAdmitted,       // it belongs here; the rest is to come
  kRefused,        // it does not: why
  kWelcome,        // all are there: who
  kHeartbeat,      // each half second
  kLost,           // a rank is lost
  kFarewell,       // a rank leaves, as it should
  kArrived,        // a rank is through with a round
  kEnough,         // rank 0: enough are
};

struct Greeting {
  std::string attempt;
  int rank = 0;
  int size = 0;
  int local_rank = 0;
  bool for_data = false;        // not for messages
  std::vector<Member> members;  // all of its host, where it comes from another
  Challenge challenge{};        // for the welcome
  int port = 0;                 // where this host waits for the others, of its data connection
};

/// Where a host waits for others.
struct Place {
  std::string address;
  int port = 0;
  bool operator==(const Place&) const = default;
};

struct Welcome {
  std::vector<Member> members;          // by rank
  std::vector<std::vector<int>> hosts;  // the ranks of each, by local rank; rank 0's first
  std::vector<Place> places = {};       // of each of several hosts; rank 0's is nowhere
};

struct Loss {
  int rank = 0;
  std::string cause;
  double silent_seconds = 0;
};

/// A round, of whatever the ranks do in rounds.
struct Round {
  std::uint64_t number = 0;
  std::uint32_t needed = 0;  // how many ranks are enough
};

/// The kind of a message. Throws Error for an empty one.
MessageKind kind_of(std::span<const std::byte> message);

std::vector<std::byte> pack(MessageKind kind);
std::vector<std::byte> pack(const Challenge& challenge);
/// With a seal over what the other side challenged with; the secret may be empty.
std::vector<std::byte> pack(const Greeting& greeting, const Challenge& against,
                            const std::string& secret);
std::vector<std::byte> pack(const Welcome& welcome, const Challenge& against,
                            const std::string& secret);
std::vector<std::byte> pack_refusal(const std::string& why);
std::vector<std::byte> pack(const Loss& loss);
std::vector<std::byte> pack_farewell(int rank);
std::vector<std::byte> pack(MessageKind kind, const Round& round);

// The inverse; each throws Error for another kind, or one that is cut short.

Challenge unpack_challenge(std::span<const std::byte> message);
/// Also throws Error where the seal is not of this secret.
Greeting unpack_greeting(std::span<const std::byte> message, const Challenge& against,
                         const std::string& secret);
Welcome unpack_welcome(std::span<const std::byte> message, const Challenge& against,
                       const std::string& secret);
std::string unpack_refusal(std::span<const std::byte> message);
Loss unpack_loss(std::span<const std::byte> message);
int unpack_farewell(std::span<const std::byte> message);
Round unpack_round(std::span<const std::byte> message, MessageKind kind);

}  // namespace shoal::group
