#include "shoal/collect/reward_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "shoal/os/error.h"

namespace shoal::collect {
namespace {
constexpr double kVarianceFloor = 1e-8;
}  // namespace

RewardScaler::RewardScaler(int num_envs, RewardScalerOptions options)
    : options_(options), return_(static_cast<std::size_t>(num_envs), 0.0) {
  observed_.reserve(return_.size());
}

void RewardScaler::scale(std::span<const double> reward, std::span<const std::uint8_t> valid,
                         std::span<const std::uint8_t> done, std::span<float> out) {
  if (options_.form != RewardForm::kNormalized) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = valid[i] != 0 ? of(reward[i], 1.0) : 0.0F;
    return;
  }
  const int shards = shards_ ? shards_->shards() : 1;
  const std::size_t each = out.size() / static_cast<std::size_t>(shards);
  for (int shard = 0; shard < shards; ++shard) {
    const std::size_t from = static_cast<std::size_t>(shard) * each;
    scale_shard(from, from + each, shard, reward, valid, done, out);
  }
}

void RewardScaler::scale_shard(std::size_t from, std::size_t to, int shard,
                               std::span<const double> reward, std::span<const std::uint8_t> valid,
                               std::span<const std::uint8_t> done, std::span<float> out) {
  observed_.clear();
  for (std::size_t i = from; i < to; ++i) {
    if (valid[i] == 0 || !std::isfinite(reward[i])) continue;
    return_[i] = return_[i] * options_.gamma + reward[i];
    observed_.push_back(return_[i]);
  }
  const std::span<const double> observed(observed_);
  if (!shards_) moments_.update(observed);
  const double std = divisor(shards_ ? shards_->update(shard, observed, moments_) : moments_);
  for (std::size_t i = from; i < to; ++i) {
    out[i] = valid[i] != 0 ? of(reward[i], std) : 0.0F;
    if (valid[i] == 0 || done[i] != 0) return_[i] = 0.0;
  }
}

double RewardScaler::divisor(const RunningMoments& moments) const noexcept {
  return options_.form == RewardForm::kNormalized ? std::sqrt(moments.var()[0] + kVarianceFloor)
                                                  : 1.0;
}

float RewardScaler::of(double reward, double divisor) const noexcept {
  switch (options_.form) {
    case RewardForm::kRaw:
      break;
    case RewardForm::kSign:
      return static_cast<float>((reward > 0) - (reward < 0));
    case RewardForm::kNormalized:
      if (!std::isfinite(reward)) break;
      return static_cast<float>(std::clamp(reward / divisor, -options_.clip, options_.clip));
  }
  return static_cast<float>(reward);
}

float RewardScaler::of(double reward) const noexcept { return of(reward, divisor(moments_)); }

void RewardScaler::restore(std::span<const double> running_return) {
  if (running_return.size() != return_.size()) {
    throw InvalidArgument(
        fmt::format("restore the discounted returns of {} environments: got {}; the state is that "
                    "of another number of environments",
                    return_.size(), running_return.size()));
  }
  std::copy(running_return.begin(), running_return.end(), return_.begin());
}

void RewardScaler::restart() noexcept { std::fill(return_.begin(), return_.end(), 0.0); }

}  // namespace shoal::collect
