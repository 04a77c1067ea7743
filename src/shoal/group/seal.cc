#include "shoal/group/seal.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstdlib>
#include <cstring>

#include "shoal/group/sha256.h"
#include "shoal/os/error.h"
#include "shoal/os/socket/stream.h"

namespace shoal::group {
namespace {

Digest seal_of(std::span<const std::byte> body, std::string_view version, const Challenge& against,
               const std::string& secret) {
  std::vector<std::byte> all(against.begin(), against.end());
  const auto name = std::as_bytes(std::span(version));
  all.insert(all.end(), name.begin(), name.end());
  all.insert(all.end(), body.begin(), body.end());
  return hmac_sha256(std::as_bytes(std::span(secret)), all);
}

}  // namespace

Challenge make_challenge() {
  Challenge challenge;
  if (::getrandom(challenge.data(), challenge.size(), 0) != static_cast<ssize_t>(challenge.size()))
    throw SystemError("get random bytes to challenge a peer with");
  return challenge;
}

Challenge challenge_of(std::span<const std::byte> bytes) {
  Challenge challenge;
  if (bytes.size() != challenge.size()) throw Error("a challenge of another length than ours");
  std::memcpy(challenge.data(), bytes.data(), challenge.size());
  return challenge;
}

std::vector<std::byte> sealed(std::vector<std::byte> message, std::string_view version,
                              const Challenge& against, const std::string& secret) {
  const Digest seal = seal_of(message, version, against, secret);
  message.insert(message.end(), seal.begin(), seal.end());
  return message;
}

std::span<const std::byte> unsealed(std::span<const std::byte> message, std::string_view version,
                                    const Challenge& against, const std::string& secret) {
  Digest seal;
  if (message.size() < seal.size()) throw Error("a message that is cut short");
  const auto body = message.first(message.size() - seal.size());
  std::memcpy(seal.data(), message.data() + body.size(), seal.size());
  if (!same_digest(seal, seal_of(body, version, against, secret)))
    throw Error("SHOAL_GROUP_SECRET is another there than here, or only one of the two has it");
  return body;
}

void require_secret(const std::string& host, const std::string& secret, std::string_view attempt,
                    std::string_view whose) {
  if (!secret.empty() || os::is_loopback(host)) return;
  throw InvalidArgument(fmt::format(
      "{} without a secret: set SHOAL_GROUP_SECRET {} to the same text, which nobody else knows, "
      "such as what `openssl rand -hex 16` prints",
      attempt, whose));
}

std::string secret_of_environment() {
  const char* secret = std::getenv("SHOAL_GROUP_SECRET");
  return secret == nullptr ? "" : secret;
}

}  // namespace shoal::group
