// From raw rewards to those that are learned from: as they are, their sign, or divided by the
// running standard deviation of the discounted return and clipped (SB3's and Gymnasium's reward
// normalisation: the mean is not subtracted).
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shoal/collect/running_moments.h"
#include "shoal/collect/shard_moments.h"

namespace shoal::collect {

enum class RewardForm : std::uint8_t { kRaw, kSign, kNormalized };

struct RewardScalerOptions {
  RewardForm form = RewardForm::kRaw;
  double gamma = 0.99;
  double clip = 10.0;
};

class RewardScaler {
 public:
  RewardScaler(int num_envs, RewardScalerOptions options);

  /// From now on the environments are so many shards of equal size, in their order, each of which
  /// is scaled by its own moments; moments() are what all agreed on.
  void split(int shards) { shards_.emplace(moments_.size(), shards, moments_); }
  /// None before split().
  ShardMoments* shards() noexcept { return shards_ ? &*shards_ : nullptr; }

  /// Scales one step of every environment into `out`; all spans have num_envs elements. Rows with
  /// `valid` 0 give 0; these, and rewards that are not finite, teach nothing. `done` ends the row's
  /// return.
  void scale(std::span<const double> reward, std::span<const std::uint8_t> valid,
             std::span<const std::uint8_t> done, std::span<float> out);

  /// What a reward is by the moments so far; teaches nothing. One that is not finite is so still, but
  /// for its sign.
  float of(double reward) const noexcept;

  /// Forgets the returns under way (the environments were reset), not the moments.
  void restart() noexcept;

  /// The discounted returns under way, one element an environment, for checkpoints.
  std::span<const double> running_return() const noexcept { return return_; }
  /// Throws InvalidArgument for another number of environments.
  void restore(std::span<const double> running_return);

  RunningMoments& moments() noexcept { return moments_; }
  const RunningMoments& moments() const noexcept { return moments_; }

 private:
  void scale_shard(std::size_t from, std::size_t to, int shard, std::span<const double> reward,
                   std::span<const std::uint8_t> valid, std::span<const std::uint8_t> done,
                   std::span<float> out);
  double divisor(const RunningMoments& moments) const noexcept;
  float of(double reward, double divisor) const noexcept;

  RewardScalerOptions options_;
  std::vector<double> return_;
  std::vector<double> observed_;
  RunningMoments moments_{1};
  std::optional<ShardMoments> shards_;
};

}  // namespace shoal::collect
