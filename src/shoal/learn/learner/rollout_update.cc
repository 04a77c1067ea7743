#include "shoal/learn/learner/rollout_update.h"

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
                             std::unique_ptr<Optimizer> optimizer)
    : policy_(policy),
      config_(config),
      coefficients_{.value_coef = static_cast<float>(config.value_coef),
                    .entropy_coef = static_cast<float>(config.entropy_coef)},
      optimizer_(optimizer ? std::move(optimizer)
                           : make_optimizer(config, policy.parameters().flat().size())),
      batch_(policy, config_) {}

UpdateStats RolloutUpdate::run(collect::Rollout& rollout, const UpdateTime& time) {
  UpdateStats stats;
  stats.learning_rate =
      scheduled(config_.learning_rate, config_.learning_rate_schedule, time.remaining);
  estimate(rollout);
  stats.explained_variance = advantages_.explained_variance(rollout);
  learn(rollout, time, stats);
  return stats;
}

void RolloutUpdate::estimate(collect::Rollout& rollout) { advantages_.estimate(rollout, config_); }

}  // namespace shoal::learn
