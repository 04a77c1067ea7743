// What DQN is told, with the defaults of Stable-Baselines3's DQN, version 2.9:
//
//   learning_rate 1e-4, buffer_size 1e6, learning_starts 100, batch_size 32, tau 1, gamma 0.99,
//   train_freq 4, gradient_steps 1, n_step 1, target_update_interval 10000, exploration from 1 to 0.05 over the
//   first tenth of the run, max_grad_norm 10, smooth L1 loss, 64-64 with ReLU
//
// but for `double_dqn`, which Stable-Baselines3 lacks and most others have: on. Dueling and prioritised are off, and
// on in the presets that say so. What differs from Stable-Baselines3, too: each environment draws for itself
// whether it explores.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "shoal/learn/config/preset.h"
#include "shoal/learn/off_policy/off_policy_config.h"

namespace shoal::learn {

/// What a TD error costs: half its square within 1 and linear beyond (smooth L1), or its square.
enum class TdLoss : std::uint8_t { kHuber, kMse };

std::span<const char* const> value_names(TdLoss);

struct DqnConfig : OffPolicyConfig {
  static constexpr std::string_view kAlgorithm = "dqn";

  bool double_dqn = true;  // the online network chooses the action that the target network values
  bool dueling = false;    // value and advantage apart (q_network.h)
  TdLoss td_loss = TdLoss::kHuber;
  std::int64_t target_update_interval = 10'000;  // steps between two moves of the target
  // Share of random actions: from `initial` to `final`, linear over this fraction of total_steps.
  double exploration_initial = 1.0;
  double exploration_final = 0.05;
  double exploration_fraction = 0.1;

  DqnConfig() {
    learning_rate = 1e-4;
    batch_size = 32;
    train_freq = 4;
    max_grad_norm = 10;
  }

  bool operator==(const DqnConfig&) const = default;

  /// "sb3", "cleanrl_atari", "zoo_atari", "atari", "zoo_cartpole", "zoo_lunarlander", and one for each task that it was tuned for.
  static std::span<const Preset> presets();
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its limits.
void validate(const DqnConfig& config);

/// Share of random actions when `remaining` (1 at the start, 0 at the end) of the run is to come.
double exploration(const DqnConfig& config, double remaining) noexcept;

template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, DqnConfig>
void for_each_option(Config& c, Visit&& visit) {
  for_each_off_policy_option(c, visit);
  visit("double_dqn", c.double_dqn);
  visit("dueling", c.dueling);
  visit("td_loss", c.td_loss);
  visit("target_update_interval", c.target_update_interval);
  visit("exploration_initial", c.exploration_initial);
  visit("exploration_final", c.exploration_final);
  visit("exploration_fraction", c.exploration_fraction);
  visit("precision", c.precision);
  visit("pixel_mean", c.pixel_mean);
}

}  // namespace shoal::learn
