#include "shoal/learn/learner/rollout_update.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace shoal::learn {

void UpdateStats::add(const Losses& losses, double norm) {
  policy_loss += losses.policy;
  value_loss += losses.value;
  entropy += losses.entropy;
  loss += losses.total;
  grad_norm += norm;
}

void report(const UpdateStats& update, const ActorCriticPolicy& policy, IterationStats& stats) {
  stats.policy_loss = update.policy_loss;
  stats.value_loss = update.value_loss;
  stats.entropy = update.entropy;
  stats.loss = update.loss;
  stats.approx_kl = update.approx_kl;
  stats.clip_fraction = update.clip_fraction;
  stats.explained_variance = update.explained_variance;
  stats.grad_norm = update.grad_norm;
  stats.learning_rate = update.learning_rate;
  stats.clip_range = update.clip_range;
  stats.epochs = update.epochs;
  if (const auto log_std = policy.log_std(); !log_std.empty()) {
    double sum = 0;
    for (const float s : log_std) sum += std::exp(static_cast<double>(s));
    stats.action_std = sum / static_cast<double>(log_std.size());
  }
}

RolloutUpdate::RolloutUpdate(ActorCriticPolicy& policy, const LearnerConfig& config,
                             std::unique_ptr<Optimizer> optimizer, Shards shards)
    : policy_(policy),
      config_(config),
      coefficients_{.value_coef = static_cast<float>(config.value_coef)},
      optimizer_(optimizer ? std::move(optimizer)
                           : make_optimizer(config, policy.parameters().flat().size())),
      shards_(std::move(shards)),
      batch_(policy, config_) {}

UpdateStats RolloutUpdate::run(collect::Rollout& rollout, const UpdateTime& time) {
  UpdateStats stats;
  gradient_time_ = {};
  stats.learning_rate =
      scheduled(config_.learning_rate, config_.learning_rate_schedule, time.remaining);
  coefficients_.entropy_coef = static_cast<float>(
      scheduled(config_.entropy_coef, config_.entropy_coef_schedule, time.remaining));
  estimate(rollout);
  if (shards_.whole()) {
    rows_of_shards_ = {advantages_.rows};
    total_rows_ = static_cast<std::int64_t>(advantages_.rows.size());
    stats.explained_variance = advantages_.explained_variance(rollout);
  } else {
    shards_.part(advantages_.rows, rows_of_shards_);
    stats.explained_variance = agree(rollout);
  }
  learn(rollout, time, stats);
  return stats;
}

void RolloutUpdate::estimate(collect::Rollout& rollout) {
  LearnerConfig config = config_;
  if (!shards_.whole()) config.advantage_normalization = AdvantageNormalization::kNone;  // agree()
  advantages_.estimate(rollout, config);
}

double RolloutUpdate::agree(collect::Rollout& rollout) {
  // Of each shard: rows, and sums and sums of squares of advantages, returns and errors.
  constexpr std::size_t kSums = kMoments + 4;
  std::vector<double> sums;
  for (const auto& rows : rows_of_shards_) {
    std::array<double, kSums> its{};
    add_moments(rows, std::span(its).first<kMoments>());
    for (const auto r : rows) {
      const auto i = static_cast<std::size_t>(r);
      const double returns = advantages_.returns[i];
      const double error = returns - rollout.value()[i];
      its[3] += returns;
      its[4] += returns * returns;
      its[5] += error;
      its[6] += error * error;
    }
    sums.insert(sums.end(), its.begin(), its.end());
  }
  shards_.sum({}, sums);
  total_rows_ = static_cast<std::int64_t>(sums[0]);
  if (config_.advantage_normalization == AdvantageNormalization::kRollout) {
    const WholeBatch whole = wholes_of(std::span(sums).first(kMoments)).front();
    for (const auto r : advantages_.rows) {
      float& a = advantages_.advantage[static_cast<std::size_t>(r)];
      a = static_cast<float>((a - whole.mean) * whole.scale);
    }
  }
  const double n = sums[0];
  const double var_return = sums[4] - sums[3] * sums[3] / n;
  const double var_error = sums[6] - sums[5] * sums[5] / n;
  return var_return > 0 ? 1.0 - var_error / var_return : std::numeric_limits<double>::quiet_NaN();
}

void RolloutUpdate::add_moments(std::span<const std::int32_t> rows,
                                std::span<double, kMoments> out) const {
  out[0] += static_cast<double>(rows.size());
  for (const auto r : rows) {
    const double a = advantages_.advantage[static_cast<std::size_t>(r)];
    out[1] += a;
    out[2] += a * a;
  }
}

std::vector<WholeBatch> RolloutUpdate::wholes_of(std::span<const double> moments) const {
  std::vector<WholeBatch> wholes;
  for (; !moments.empty(); moments = moments.subspan(kMoments)) {
    WholeBatch whole{.rows = moments[0]};
    if (whole.rows >= 2) {  // as normalize_advantages()
      whole.mean = moments[1] / whole.rows;
      const double squares = std::max(0.0, moments[2] - moments[1] * whole.mean);
      whole.scale = 1.0 / (std::sqrt(squares / (whole.rows - 1.0)) + 1e-8);
    }
    wholes.push_back(whole);
  }
  return wholes;
}

}  // namespace shoal::learn
