#include "shoal/learn/ppo/ppo_update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "shoal/collect/running_moments.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

void take_mean(UpdateStats& sums, int minibatches) {
  for (double* sum : {&sums.policy_loss, &sums.value_loss, &sums.entropy, &sums.loss,
                      &sums.clip_fraction, &sums.grad_norm}) {
    *sum /= minibatches;
  }
}

}  // namespace

PpoUpdate::PpoUpdate(ActorCriticPolicy& policy, const PpoConfig& config, Shards shards)
    : RolloutUpdate(policy, config, nullptr, std::move(shards)),
      ppo_(config),
      loss_(policy.distribution()) {
  if (!shards_.whole() && (config.recompute_advantages || config.normalize_returns))
    throw InvalidArgument(
        "recompute_advantages and normalize_returns are for one rank and shards = 1: leave them "
        "out");
  if (config.normalize_returns) returns_ = collect::RunningMoments(1);
}

void PpoUpdate::estimate(collect::Rollout& rollout) {
  if (!ppo_.normalize_returns) return RolloutUpdate::estimate(rollout);
  constexpr double kLeast = 1e-8;  // added to the variance
  const auto unit = static_cast<float>(std::sqrt(returns_.var()[0] + kLeast));
  advantages_.estimate(rollout, config_, unit);
  std::vector<float> valid;
  for (const auto r : advantages_.rows)
    valid.push_back(advantages_.returns[static_cast<std::size_t>(r)]);
  returns_.update(std::span<const float>(valid));
  for (float& r : advantages_.returns) r /= unit;
}

void PpoUpdate::value_anew(collect::Rollout& rollout) {
  const auto envs = static_cast<std::size_t>(rollout.envs());
  std::vector<float> last(envs);
  policy_.model().forward(rollout.obs(), {}, {}, rollout.value());
  policy_.model().forward(rollout.obs(rollout.steps()), {}, {}, last);
  rollout.link_values(last);
}

void PpoUpdate::learn(collect::Rollout& rollout, const UpdateTime& time, UpdateStats& stats) {
  stats.clip_range = scheduled(ppo_.clip_range, ppo_.clip_range_schedule, time.remaining);
  stats.approx_kl = stats.clip_fraction = 0;
  const PpoClipping clip = clipping_of(ppo_, stats.clip_range);
  const auto loss = [&](const LossRows& rows, const LossDerivatives& by) {
    return loss_(rows, clip, coefficients_, by);
  };
  const std::size_t count = total_rows_ == 0 ? 0 : split(rollout);
  int minibatches = 0;
  bool too_far = false;
  for (int epoch = 0; epoch < ppo_.epochs && count > 0 && !too_far; ++epoch) {
    ++stats.epochs;
    if (epoch > 0 && ppo_.recompute_advantages) {
      value_anew(rollout);
      estimate(rollout);
    }
    shuffle(time.iteration, epoch);
    std::vector<WholeBatch> whole(count);
    if (!shards_.whole()) whole = wholes(count, [&](std::size_t k) { return minibatch(k, count); });
    double epoch_kl = 0;
    std::size_t done = 0;
    for (; done < count && !too_far; ++done) {
      const auto [losses, length] =
          differentiate(rollout, minibatch(done, count), whole[done], loss);
      stats.add(losses, length);
      stats.clip_fraction += losses.clip_fraction;
      epoch_kl += losses.approx_kl;
      ++minibatches;
      too_far = ppo_.target_kl && losses.approx_kl > 1.5 * *ppo_.target_kl;
      if (!too_far) batch_.step(*optimizer_, length, stats.learning_rate);
    }
    stats.approx_kl = epoch_kl / static_cast<double>(done);
  }
  if (minibatches > 0) take_mean(stats, minibatches);
}

std::size_t PpoUpdate::split(collect::Rollout& /*rollout*/) {
  // Equal sizes give or take one row: masked rows leave no sliver at the end.
  const auto n = static_cast<std::size_t>(total_rows_);
  const auto wanted = static_cast<std::size_t>(ppo_.batch_size);
  return std::max<std::size_t>(1, (n + wanted / 2) / wanted);
}

RolloutUpdate::Parts PpoUpdate::minibatch(std::size_t which, std::size_t count) {
  Parts parts;
  for (const auto& rows : rows_of_shards_) {
    const std::size_t from = rows.size() * which / count;
    parts.emplace_back(std::span<const std::int32_t>(rows).subspan(
        from, rows.size() * (which + 1) / count - from));
  }
  return parts;
}

void PpoUpdate::shuffle(std::int64_t iteration, int epoch) {
  auto shard = static_cast<std::uint32_t>(shards_.first());
  for (auto& rows : rows_of_shards_) shuffle(rows, iteration, epoch, shard++);
}

void PpoUpdate::shuffle(std::span<std::int32_t> order, std::int64_t iteration, int epoch,
                        std::uint32_t shard) const {
  // Fisher and Yates.
  std::ranges::sort(order);
  const std::uint64_t step =
      static_cast<std::uint64_t>(iteration) << 16 | static_cast<std::uint64_t>(epoch);
  std::array<std::uint32_t, 4> bits{};
  for (std::size_t i = order.size(), drawn = 0; i > 1; --i, ++drawn) {
    if (drawn % 4 == 0)
      bits = policy_.random()(Stream::kShuffle, step, static_cast<std::uint32_t>(drawn / 4), shard);
    std::swap(order[i - 1], order[below(bits[drawn % 4], i)]);
  }
}

}  // namespace shoal::learn
