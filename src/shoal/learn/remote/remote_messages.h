// What a learner and its collectors on other hosts say to each other.
//
//   collector                       learner
//   ready(version it has) ────────▶
//                         ◀──────── work(weights, where it has not the newest; moments)
//   rollout, ready        ────────▶
//
//   byte 0   kind
//   then     run, attempt and version (of the weights), then fields, as process::ByteWriter writes them
//
// Images are sent as blocks of lz4, one for each environment: the frames of one lie side by side then,
// and what a stack repeats is found within lz4's window.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/collect/running_moments.h"
#include "shoal/group/connection/hello.h"
#include "shoal/learn/asynchronous/collected_rollout.h"

namespace shoal::learn {

enum class RemoteKind : std::uint8_t { kReady = group::kFirstOfOwn, kWork, kRollout };

/// In front of every message.
struct RemoteHead {
  std::string run;
  std::uint64_t attempt = 0;  // which session of the run
  std::int64_t version = -1;  // of the weights; -1: none yet
};

/// Throws Error for what is no message of a collector or its learner.
struct RemoteOpened {
  RemoteKind kind;
  RemoteHead head;
  std::span<const std::byte> rest;
};
RemoteOpened open_remote(std::span<const std::byte> message);

std::vector<std::byte> pack_ready(const RemoteHead& head);

/// What a collector is to go by: the moments of normalisers, of size 0 where there is none.
struct Normalizers {
  collect::RunningMoments obs;
  collect::RunningMoments rewards;
};

/// `parameters` is empty where the collector has them.
std::vector<std::byte> pack_work(const RemoteHead& head, std::span<const float> parameters,
                                 const Normalizers& normalizers);
/// Overwrites `normalizers`, of the same sizes; the parameters' bytes, none where the collector has
/// them. Throws Error.
std::span<const std::byte> unpack_work(std::span<const std::byte> rest, Normalizers& normalizers);

/// What a collector's normalisers have seen since it was told: count, means and variances of each.
struct NormalizerNews {
  std::vector<double> obs;
  std::vector<double> rewards;
};
/// Throws Error for news of another size.
void merge(std::span<const double> news, collect::RunningMoments& moments);

std::vector<std::byte> pack_rollout(const RemoteHead& head, CollectedRollout& collected,
                                    const NormalizerNews& news, bool compress);
/// Fills `collected`, but for its version, moments and means. `categories`: of each component of an
/// action, as collect::ActionDecoder has them. Throws Error where it is of another shape, has actions
/// that there are not, or is no rollout.
void unpack_rollout(std::span<const std::byte> rest, std::span<const std::int64_t> categories,
                    CollectedRollout& collected, NormalizerNews& news);

/// More than any message with such a rollout or so many parameters has.
std::size_t longest_rollout_message(CollectedRollout& room);
std::size_t longest_work_message(std::size_t parameters, const Normalizers& normalizers);

}  // namespace shoal::learn
