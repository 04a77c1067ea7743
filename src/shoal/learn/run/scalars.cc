#include "shoal/learn/run/scalars.h"

#include <algorithm>
#include <cmath>

namespace shoal::learn {
namespace {

class Adder {
 public:
  explicit Adder(ScalarRecord& record) : record_(record) {}
  void operator()(const char* name, double value) {
    if (!std::isnan(value)) record_.values.emplace_back(name, value);
  }

 private:
  ScalarRecord& record_;
};

}  // namespace

void EndedEpisodes::add(std::span<const collect::Episode> episodes) noexcept {
  for (const auto& episode : episodes) {
    ++count;
    return_sum += episode.episode_return;
    length_sum += static_cast<double>(episode.length);
  }
}

ScalarRecord scalars_of(const IterationStats& stats, const EndedEpisodes& ended, double seconds,
                        double steps_per_second) {
  ScalarRecord record{stats.steps, seconds, {}};
  Adder add(record);
  add("rollout/ep_rew_mean", stats.episode_return_mean);
  add("rollout/ep_len_mean", stats.episode_length_mean);
  if (stats.steps_cut) add("rollout/steps_cut", static_cast<double>(*stats.steps_cut));
  add("time/fps", steps_per_second);
  add("time/iterations", static_cast<double>(stats.iteration));
  add("time/time_elapsed", seconds);
  add("time/total_timesteps", static_cast<double>(stats.steps));
  add("train/approx_kl", stats.approx_kl);
  add("train/clip_fraction", stats.clip_fraction);
  add("train/clip_range", stats.clip_range);
  add("train/entropy_loss", -stats.entropy);
  add("train/explained_variance", stats.explained_variance);
  add("train/grad_norm", stats.grad_norm);
  add("train/learning_rate", stats.learning_rate);
  add("train/loss", stats.loss);
  add("train/policy_gradient_loss", stats.policy_loss);
  add("train/policy_lag", stats.policy_lag);
  if (stats.collectors) {
    add("collect/collectors", static_cast<double>(*stats.collectors));
    add("collect/stale_steps", static_cast<double>(stats.stale_steps));
    add("collect/lost_rollouts", static_cast<double>(stats.lost_rollouts));
  }
  if (stats.action_std) add("train/std", *stats.action_std);
  add("rollout/exploration_rate", stats.exploration);
  add("train/ent_coef", stats.temperature);
  add("train/q_value", stats.q_value);
  if (stats.updates) {
    add("train/n_updates", static_cast<double>(*stats.updates));
    add("train/updates_per_step", static_cast<double>(*stats.updates) /
                                      static_cast<double>(std::max(stats.steps, std::int64_t{1})));
  }
  add("train/value_loss", stats.value_loss);

  add("charts/SPS", steps_per_second);
  add("charts/learning_rate", stats.learning_rate);
  if (ended.count > 0) {
    add("charts/episodic_return", ended.return_sum / static_cast<double>(ended.count));
    add("charts/episodic_length", ended.length_sum / static_cast<double>(ended.count));
  }
  add("losses/approx_kl", stats.approx_kl);
  add("losses/clipfrac", stats.clip_fraction);
  add("losses/entropy", stats.entropy);
  add("losses/explained_variance", stats.explained_variance);
  add("losses/policy_loss", stats.policy_loss);
  add("losses/value_loss", stats.value_loss);
  add("losses/q_values", stats.q_value);
  if (!std::isnan(stats.q_value)) add("losses/td_loss", stats.value_loss);
  return record;
}

ScalarRecord scalars_of(const Evaluation& evaluation, std::int64_t step, double seconds) {
  ScalarRecord record{step, seconds, {}};
  Adder add(record);
  add("eval/mean_reward", evaluation.mean_return());
  add("eval/std_reward", evaluation.std_return());
  add("eval/mean_ep_length", evaluation.mean_length());
  return record;
}

}  // namespace shoal::learn
