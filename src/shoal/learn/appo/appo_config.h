// What APPO is told: the options of PPO's update and those of asynchronous learners. Defaults:
//
//   num_steps 32, batch_size 1024, one epoch, learning_rate 1e-4,   Sample Factory's
//   Adam with eps 1e-6, clip_range 0.1, entropy_coef 0.003,
//   max_grad_norm 4, normalised advantages
//   gae_lambda 1, which is V-trace's lambda; rho_bar and c_bar 1     RLlib's, and Sample Factory's
//                                                                    where it uses V-trace
//   log_interval 10
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "shoal/learn/asynchronous/asynchronous_options.h"
#include "shoal/learn/config/preset.h"
#include "shoal/learn/ppo/ppo_config.h"

namespace shoal::learn {

struct AppoConfig : PpoConfig, AsynchronousOptions {
  static constexpr std::string_view kAlgorithm = "appo";

  AppoConfig() {
    log_interval = 10;
    num_steps = 32;
    batch_size = 1024;
    epochs = 1;
    clip_range = 0.1;
    gae_lambda = 1;
    learning_rate = 1e-4;
    entropy_coef = 0.003;
    max_grad_norm = 4;
    adam_eps = 1e-6;
  }

  bool operator==(const AppoConfig&) const = default;

  /// "default", and one for each task that it was tuned for.
  static std::span<const Preset> presets();
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const AppoConfig& config);

template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, AppoConfig>
void for_each_option(Config& c, Visit&& visit) {
  for_each_option_of_update(c, visit);
  for_each_asynchronous_option(c, visit);
}

}  // namespace shoal::learn
