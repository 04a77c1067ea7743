// How each end of a connection proves to the other that it knows the secret: what it says first ends
// with an HMAC over the other's random bytes.
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::group {

/// Random bytes that the answer's HMAC is over.
using Challenge = std::array<std::byte, 16>;
Challenge make_challenge();

/// Throws Error for bytes of another length.
Challenge challenge_of(std::span<const std::byte> bytes);

/// The message, with its seal at the end. `version` names what both ends speak; the secret may be
/// empty.
std::vector<std::byte> sealed(std::vector<std::byte> message, std::string_view version,
                              const Challenge& against, const std::string& secret);

/// The message without its seal. Throws Error where that is not of this secret.
std::span<const std::byte> unsealed(std::span<const std::byte> message, std::string_view version,
                                    const Challenge& against, const std::string& secret);

/// Throws InvalidArgument where `host` is not this machine's loopback and there is no secret. The text
/// begins with `attempt`; `whose` says who has to have one, as "on both sides".
void require_secret(const std::string& host, const std::string& secret, std::string_view attempt,
                    std::string_view whose);

/// Of SHOAL_GROUP_SECRET; empty where that is not set.
std::string secret_of_environment();

}  // namespace shoal::group
