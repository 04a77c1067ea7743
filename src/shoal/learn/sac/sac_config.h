// What SAC is told, with the defaults of Stable-Baselines3's SAC, version 2.9:
//
//   learning_rate 3e-4 for actor, critics and temperature, buffer_size 1e6, learning_starts 100, batch_size 256,
//   tau 0.005, gamma 0.99, train_freq 1, gradient_steps 1, automatic temperature from 1 on, target entropy
//   -dimensions, 256-256 with ReLU, gradients not clipped
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "shoal/learn/config/preset.h"
#include "shoal/learn/off_policy/off_policy_config.h"

namespace shoal::learn {

struct SacConfig : OffPolicyConfig {
  static constexpr std::string_view kAlgorithm = "sac";

  // entropy_coef is the temperature: the first one, where it is learned.
  bool automatic_entropy = true;         // the temperature is learned (Haarnoja et al., 2018b)
  std::optional<double> target_entropy;  // absent: -dimensions of the action

  SacConfig() {
    learning_rate = 3e-4;
    entropy_coef = 1.0;
    tau = 0.005;
    policy_hidden = {256, 256};
    value_hidden = {256, 256};
  }

  bool operator==(const SacConfig&) const = default;

  /// "sb3", "zoo_mujoco", and one for each task that it was tuned for.
  static std::span<const Preset> presets();
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its limits.
void validate(const SacConfig& config);

template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, SacConfig>
void for_each_option(Config& c, Visit&& visit) {
  for_each_off_policy_option(c, visit);
  visit("value_hidden", c.value_hidden);
  visit("entropy_coef", c.entropy_coef);
  visit("automatic_entropy", c.automatic_entropy);
  visit("target_entropy", c.target_entropy);
}

}  // namespace shoal::learn
