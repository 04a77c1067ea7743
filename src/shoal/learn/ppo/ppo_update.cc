#include "shoal/learn/ppo/ppo_update.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace shoal::learn {
namespace {

void take_mean(UpdateStats& sums, int minibatches) {
  for (double* sum : {&sums.policy_loss, &sums.value_loss, &sums.entropy, &sums.loss,
                      &sums.clip_fraction, &sums.grad_norm}) {
    *sum /= minibatches;
  }
}

}  // namespace

PpoUpdate::PpoUpdate(ActorCriticPolicy& policy, const PpoConfig& config)
    : RolloutUpdate(policy, config), ppo_(config), loss_(policy.distribution()) {}

void PpoUpdate::learn(collect::Rollout& rollout, const UpdateTime& time, UpdateStats& stats) {
  stats.clip_range = scheduled(ppo_.clip_range, ppo_.clip_range_schedule, time.remaining);
  stats.approx_kl = stats.clip_fraction = 0;
  const PpoClipping clip = clipping_of(ppo_, stats.clip_range);
  // As many minibatches as fit best, of equal size give or take one row: masked rows leave no
  // sliver at the end.
  const std::size_t n = advantages_.rows.size();
  const auto wanted = static_cast<std::size_t>(ppo_.batch_size);
  const std::size_t count = n == 0 ? 0 : std::max<std::size_t>(1, (n + wanted / 2) / wanted);
  int minibatches = 0;
  bool too_far = false;
  for (int epoch = 0; epoch < ppo_.epochs && count > 0 && !too_far; ++epoch) {
    ++stats.epochs;
    shuffle(time.iteration, epoch);
    double epoch_kl = 0;
    std::size_t done = 0;
    for (; done < count && !too_far; ++done) {
      const std::size_t from = n * done / count;
      const auto rows = std::span<const std::int32_t>(advantages_.rows)
                            .subspan(from, n * (done + 1) / count - from);
      batch_.take(rollout, advantages_, rows);
      const PpoLosses losses = loss_(batch_.rows(), clip, coefficients_, batch_.derivatives());
      const double length = batch_.differentiate();
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

void PpoUpdate::shuffle(std::int64_t iteration, int epoch) {
  // Fisher and Yates, from a known order, so that an epoch's order depends on nothing before it.
  auto& rows = advantages_.rows;
  std::ranges::sort(rows);
  const std::uint64_t step =
      static_cast<std::uint64_t>(iteration) << 16 | static_cast<std::uint64_t>(epoch);
  std::array<std::uint32_t, 4> bits{};
  for (std::size_t i = rows.size() - 1, drawn = 0; i > 0; --i, ++drawn) {
    if (drawn % 4 == 0)
      bits = policy_.random()(Stream::kShuffle, step, static_cast<std::uint32_t>(drawn / 4));
    std::swap(rows[i], rows[below(bits[drawn % 4], i + 1)]);
  }
}

}  // namespace shoal::learn
