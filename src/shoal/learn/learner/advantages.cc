#include "shoal/learn/learner/advantages.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "shoal/collect/gae.h"

namespace shoal::learn {

void Advantages::estimate(collect::Rollout& rollout, const LearnerConfig& config, float unit) {
  start(rollout);
  std::vector<float> scaled[2];
  std::span<const float> values[] = {rollout.value(), rollout.next_value()};
  for (std::size_t k = 0; k < 2 && unit != 1.0F; ++k) {
    for (const float v : values[k]) scaled[k].push_back(v * unit);
    values[k] = scaled[k];
  }
  collect::gae({.steps = rollout.steps(),
                .envs = rollout.envs(),
                .reward = rollout.reward(),
                .value = values[0],
                .next_value = values[1],
                .terminated = rollout.terminated(),
                .truncated = rollout.truncated(),
                .valid = rollout.valid(),
                .gamma = static_cast<float>(config.gamma),
                .lambda = static_cast<float>(config.gae_lambda),
                .bootstrap_truncated = config.bootstrap_truncated},
               advantage, returns);
  finish(config);
}

void Advantages::start(const collect::Rollout& rollout) {
  rows = rollout.valid_rows();
  advantage.resize(rollout.size());
  returns.resize(rollout.size());
}

void Advantages::finish(const LearnerConfig& config) {
  if (config.advantage_normalization != AdvantageNormalization::kRollout) return;
  std::vector<float> valid;
  for (const auto r : rows) valid.push_back(advantage[static_cast<std::size_t>(r)]);
  normalize_advantages(valid);
  for (std::size_t k = 0; k < rows.size(); ++k)
    advantage[static_cast<std::size_t>(rows[k])] = valid[k];
}

double Advantages::explained_variance(collect::Rollout& rollout) const {
  const std::span<const float> value = rollout.value();
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

void normalize_advantages(std::span<float> advantage) {
  if (advantage.size() < 2) return;
  const auto n = static_cast<double>(advantage.size());
  double mean = 0;
  for (const float a : advantage) mean += a;
  mean /= n;
  double squares = 0;
  for (const float a : advantage) squares += (a - mean) * (a - mean);
  const double scale = 1.0 / (std::sqrt(squares / (n - 1.0)) + 1e-8);
  for (float& a : advantage) a = static_cast<float>((a - mean) * scale);
}

}  // namespace shoal::learn
