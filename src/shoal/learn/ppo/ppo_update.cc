#include "shoal/learn/ppo/ppo_update.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "shoal/collect/gae.h"

namespace shoal::learn {
namespace {

double explained_variance(std::span<const float> value, std::span<const float> returns,
                          std::span<const std::int32_t> rows) {
  const auto n = static_cast<double>(rows.size());
  double mean_return = 0;
  double mean_error = 0;
  for (const auto r : rows) {
    const auto i = static_cast<std::size_t>(r);
    mean_return += returns[i] / n;
    mean_error += (static_cast<double>(returns[i]) - value[i]) / n;
  }
  double var_return = 0;
  double var_error = 0;
  for (const auto r : rows) {
    const auto i = static_cast<std::size_t>(r);
    const double d = returns[i] - mean_return;
    const double e = static_cast<double>(returns[i]) - value[i] - mean_error;
    var_return += d * d;
    var_error += e * e;
  }
  return var_return > 0 ? 1.0 - var_error / var_return : std::numeric_limits<double>::quiet_NaN();
}

void add(UpdateStats& sums, const PpoLosses& losses, double grad_norm) {
  sums.losses.policy += losses.policy;
  sums.losses.value += losses.value;
  sums.losses.entropy += losses.entropy;
  sums.losses.total += losses.total;
  sums.losses.clip_fraction += losses.clip_fraction;
  sums.grad_norm += grad_norm;
}

void take_mean(UpdateStats& sums, int minibatches) {
  auto& l = sums.losses;
  for (double* sum :
       {&l.policy, &l.value, &l.entropy, &l.total, &l.clip_fraction, &sums.grad_norm}) {
    *sum /= minibatches;
  }
}

}  // namespace

PpoUpdate::PpoUpdate(PpoPolicy& policy, const PpoConfig& config)
    : policy_(policy),
      config_(config),
      loss_(policy.distribution()),
      adam_(policy.parameters().flat().size(),
            {config.adam_beta1, config.adam_beta2, config.adam_eps}),
      gradient_(policy.parameters().flat().size()) {}

UpdateStats PpoUpdate::run(collect::Rollout& rollout, std::int64_t iteration, double learning_rate,
                           double clip_range) {
  rows_ = rollout.valid_rows();
  estimate_advantages(rollout);
  UpdateStats stats;
  stats.explained_variance = explained_variance(rollout.value(), returns_, rows_);
  const PpoCoefficients weights = coefficients(clip_range);
  // As many minibatches as fit best, of equal size give or take one row: masked rows leave no
  // sliver at the end.
  const std::size_t n = rows_.size();
  const auto wanted = static_cast<std::size_t>(config_.batch_size);
  const std::size_t count = n == 0 ? 0 : std::max<std::size_t>(1, (n + wanted / 2) / wanted);
  int minibatches = 0;
  bool too_far = false;
  for (int epoch = 0; epoch < config_.epochs && count > 0 && !too_far; ++epoch) {
    ++stats.epochs;
    shuffle(iteration, epoch);
    double epoch_kl = 0;
    std::size_t done = 0;
    for (; done < count && !too_far; ++done) {
      const std::size_t from = n * done / count;
      const auto rows =
          std::span<const std::int32_t>(rows_).subspan(from, n * (done + 1) / count - from);
      const PpoLosses losses = differentiate(rollout, rows, weights);
      const double length = norm(gradient_.span());
      add(stats, losses, length);
      epoch_kl += losses.approx_kl;
      ++minibatches;
      too_far = config_.target_kl && losses.approx_kl > 1.5 * *config_.target_kl;
      if (too_far) continue;
      adam_.step(policy_.parameters().flat(), gradient_.span(),
                 clip_factor(length, config_.max_grad_norm), learning_rate);
      policy_.model().parameters_changed();
    }
    stats.losses.approx_kl = epoch_kl / static_cast<double>(done);
  }
  if (minibatches > 0) take_mean(stats, minibatches);
  return stats;
}

PpoCoefficients PpoUpdate::coefficients(double clip_range) const {
  PpoCoefficients weights{.clip_range = static_cast<float>(clip_range),
                          .clip_range_value = {},
                          .pessimistic_value_clip = config_.pessimistic_value_clip,
                          .value_coef = static_cast<float>(config_.value_coef),
                          .entropy_coef = static_cast<float>(config_.entropy_coef)};
  if (config_.clip_range_value)
    weights.clip_range_value = static_cast<float>(*config_.clip_range_value);
  return weights;
}

void PpoUpdate::estimate_advantages(collect::Rollout& rollout) {
  advantage_.resize(rollout.size());
  returns_.resize(rollout.size());
  collect::gae({.steps = rollout.steps(),
                .envs = rollout.envs(),
                .reward = rollout.reward(),
                .value = rollout.value(),
                .next_value = rollout.next_value(),
                .terminated = rollout.terminated(),
                .truncated = rollout.truncated(),
                .valid = rollout.valid(),
                .gamma = static_cast<float>(config_.gamma),
                .lambda = static_cast<float>(config_.gae_lambda),
                .bootstrap_truncated = config_.bootstrap_truncated},
               advantage_, returns_);
  if (config_.advantage_normalization != AdvantageNormalization::kRollout) return;
  std::vector<float> valid;
  for (const auto r : rows_) valid.push_back(advantage_[static_cast<std::size_t>(r)]);
  normalize_advantages(valid);
  for (std::size_t k = 0; k < rows_.size(); ++k)
    advantage_[static_cast<std::size_t>(rows_[k])] = valid[k];
}

void PpoUpdate::shuffle(std::int64_t iteration, int epoch) {
  // Fisher and Yates, from a known order, so that an epoch's order depends on nothing before it.
  std::ranges::sort(rows_);
  const std::uint64_t step =
      static_cast<std::uint64_t>(iteration) << 16 | static_cast<std::uint64_t>(epoch);
  std::array<std::uint32_t, 4> bits{};
  for (std::size_t i = rows_.size() - 1, drawn = 0; i > 0; --i, ++drawn) {
    if (drawn % 4 == 0)
      bits = policy_.random()(Stream::kShuffle, step, static_cast<std::uint32_t>(drawn / 4));
    std::swap(rows_[i], rows_[below(bits[drawn % 4], i + 1)]);
  }
}

PpoMinibatch PpoUpdate::gather(collect::Rollout& rollout, std::span<const std::int32_t> rows) {
  const std::size_t n = rows.size();
  const shm::TensorView actions = rollout.action();
  for (auto* v : {&value_, &d_value_, &old_logp_, &old_value_, &batch_advantage_, &batch_returns_})
    v->resize(n);
  for (auto* v : {&head_, &d_head_}) v->resize(n * loss_.distribution().head_size());
  actions_.resize(n * actions.row_bytes());
  for (std::size_t k = 0; k < n; ++k) {
    const auto r = static_cast<std::size_t>(rows[k]);
    old_logp_[k] = rollout.logp()[r];
    old_value_[k] = rollout.value()[r];
    batch_advantage_[k] = advantage_[r];
    batch_returns_[k] = returns_[r];
    std::memcpy(actions_.data() + k * actions.row_bytes(), actions.row_data(rows[k]),
                actions.row_bytes());
  }
  if (config_.advantage_normalization == AdvantageNormalization::kMinibatch)
    normalize_advantages(batch_advantage_);
  return {.head = head_,
          .value = value_,
          .log_std = policy_.log_std(),
          .actions = {actions_.data(), static_cast<std::int64_t>(n), actions.row},
          .old_logp = old_logp_,
          .old_value = old_value_,
          .advantage = batch_advantage_,
          .returns = batch_returns_};
}

PpoLosses PpoUpdate::differentiate(collect::Rollout& rollout, std::span<const std::int32_t> rows,
                                   const PpoCoefficients& coefficients) {
  const PpoMinibatch batch = gather(rollout, rows);
  policy_.model().forward_train(rollout.obs(), rows, head_, value_);
  d_log_std_.resize(batch.log_std.size());
  const PpoLosses losses = loss_(batch, coefficients, d_head_, d_value_, d_log_std_);
  policy_.model().backward(d_head_, d_value_, gradient_.span());
  if (!d_log_std_.empty()) {
    const auto& log_std = policy_.parameters()[static_cast<std::size_t>(policy_.network().log_std)];
    std::ranges::copy(d_log_std_, gradient_.span().subspan(log_std.offset).begin());
  }
  return losses;
}

}  // namespace shoal::learn
