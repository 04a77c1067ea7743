// VectorEnv: send() and recv() over the backends that step all environments together.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "shoal/vector/async/in_flight.h"
#include "shoal/vector/vector_env.h"

namespace shoal::vector {

void VectorEnv::send(std::span<const std::int64_t> env_ids) {
  const auto n = static_cast<std::size_t>(num_envs());
  sent_.resize(n);
  std::vector<std::uint8_t> seen(n);
  check_env_ids("send", env_ids, seen);
  std::vector<std::int64_t> busy;
  for (const std::int64_t id : env_ids) {
    if (sent_[static_cast<std::size_t>(id)] != 0) busy.push_back(id);
  }
  refuse_busy(busy);
  // The step begins with the last of them, and is refused before anything is noted.
  if (sent_count_ + env_ids.size() == n) {
    step_async();
    launched_ = true;
  }
  for (const std::int64_t id : env_ids) sent_[static_cast<std::size_t>(id)] = 1;
  sent_count_ += env_ids.size();
}

void VectorEnv::send_reset(std::span<const std::optional<std::uint64_t>> seeds,
                           std::span<const std::uint8_t> mask) {
  if (sent_count_ != 0) {
    throw AlreadyInFlight(
        "async_reset: environments are in flight; recv() them first, or discard() them");
  }
  if (!std::all_of(mask.begin(), mask.end(), [](auto m) { return m != 0; })) {
    throw InvalidArgument(
        "async_reset: without a batch_size all environments are reset together; use reset() for "
        "some of them");
  }
  reset_async(seeds, mask);
  sent_.assign(static_cast<std::size_t>(num_envs()), 1);
  sent_count_ = sent_.size();
  launched_ = true;
}

Arrivals VectorEnv::recv(std::optional<std::chrono::nanoseconds> timeout) {
  if (!launched_) {
    std::vector<std::int64_t> missing;
    sent_.resize(static_cast<std::size_t>(num_envs()));
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      if (sent_[i] == 0) missing.push_back(static_cast<std::int64_t>(i));
    }
    throw NothingInFlight(
        fmt::format("recv: waits for all {} environments, of which {} {} not in flight; send() "
                    "the missing ones first",
                    num_envs(), describe_envs(missing), missing.size() == 1 ? "is" : "are"));
  }
  Arrivals arrivals;
  arrivals.batch = wait(timeout);  // what it throws leaves all in flight
  launched_ = false;
  sent_count_ = 0;
  std::fill(sent_.begin(), sent_.end(), std::uint8_t{0});
  all_ids_.resize(sent_.size());
  std::iota(all_ids_.begin(), all_ids_.end(), std::int64_t{0});
  arrivals.env_ids = all_ids_;
  for (int worker = 0; worker < num_workers(); ++worker) {
    const auto bytes = info(worker);
    if (!bytes.empty()) arrivals.infos.push_back({.slot = -1, .bytes = bytes});
  }
  return arrivals;
}

void VectorEnv::discard(std::optional<std::chrono::nanoseconds> timeout) {
  if (launched_) {
    static_cast<void>(recv(timeout));
    return;
  }
  sent_count_ = 0;
  std::fill(sent_.begin(), sent_.end(), std::uint8_t{0});
}

}  // namespace shoal::vector
