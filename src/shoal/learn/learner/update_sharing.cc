#include "shoal/learn/learner/update_sharing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "shoal/os/clock.h"
#include "shoal/os/error.h"
#include "shoal/os/log.h"

namespace shoal::learn {
namespace {

constexpr std::size_t kSums = 5;  // that are timed

/// Median seconds of a sum over ranks of as many numbers as a minibatch has.
double seconds_of_sum(group::Group& group, std::size_t parameters) {
  std::vector<float> gradient(parameters);
  std::array<double, 8> losses{};
  std::array<double, kSums> seconds{};
  group.sum(gradient, losses);
  for (double& took : seconds) {
    const auto start = os::Clock::now();
    group.sum(gradient, losses);
    took = os::seconds_since(start);
  }
  std::ranges::sort(seconds);
  return seconds[kSums / 2];
}

}  // namespace

UpdateSharing::UpdateSharing(const Shards& shards, SplitUpdate wanted) : shards_(shards) {
  const bool several = shards_.group() != nullptr;
  if (several && wanted == SplitUpdate::kNever && !shards_.sums_alike())
    throw InvalidArgument(
        "split_update is never, for which every host has to have the same power of two of ranks: "
        "leave it out");
  chooses_ = several && wanted == SplitUpdate::kAuto && shards_.sums_alike();
  if (several && !chooses_) splits_ = wanted != SplitUpdate::kNever;
}

UpdateStats UpdateSharing::run(RolloutUpdate& update, collect::Rollout& rollout,
                               const UpdateTime& time) {
  if (splits_.value_or(true)) {
    const UpdateStats stats = update.run(rollout, time);
    if (chooses_ && !splits_) splits_ = measure(update, rollout);
    return stats;
  }
  update.learn_from(shards_.all_here());
  return update.run(whole_.of(shards_, rollout), time);
}

std::optional<bool> UpdateSharing::measure(const RolloutUpdate& update, collect::Rollout& rollout) {
  group::Group& group = *shards_.group();
  const auto& [seconds, minibatches] = update.gradient_time();
  if (minibatches == 0) return {};
  // All go by the same numbers: of gradients the sum over ranks, of the rest the mean.
  const double ranks = group.size();
  std::array<double, 2> all{seconds / minibatches, seconds_of_sum(group, update.parameters())};
  group.sum(all);
  const double gradient = all[0], share = gradient / ranks, sum = all[1] / ranks;
  const double shared_out = minibatches * (share + sum);
  double whole = minibatches * gradient;
  if (whole > shared_out)  // whatever the rollouts take
    return decide(true, fmt::format("the gradients of a minibatch take {:.0f} us, those of a rank "
                                    "of {} and a sum {:.0f} + {:.0f}",
                                    1e6 * gradient, group.size(), 1e6 * share, 1e6 * sum));
  group.barrier();
  const auto start = os::Clock::now();
  whole_.of(shards_, rollout);
  double rollouts = os::seconds_since(start);
  group.sum(std::span(&rollouts, 1));
  rollouts /= ranks;
  whole += rollouts;
  return decide(
      shared_out <= whole,
      fmt::format("the gradients of {} minibatches take {:.1f} ms, and {:.1f} to give all "
                  "ranks all rollouts; those of a rank of {} and sums {:.1f} + {:.1f}",
                  minibatches, 1e3 * (whole - rollouts), 1e3 * rollouts, group.size(),
                  1e3 * minibatches * share, 1e3 * minibatches * sum));
}

bool UpdateSharing::decide(bool splits, const std::string& why) {
  if (shards_.group()->rank() == 0)
    os::log(os::LogLevel::kInfo, "learn", "{}: {}",
            splits ? "the ranks share an update out" : "each rank computes the whole update", why);
  if (splits) whole_ = {};
  return splits;
}

}  // namespace shoal::learn
