// What IMPALA is told. Losses are means over the rollout's rows; TorchBeast, RLlib and Cleanba sum
// them, so their learning rates, limits of the norm and eps do not carry over as they are. Defaults:
//
//   num_steps 20, entropy_coef 0.01, rho_bar and c_bar 1       Cleanba and RLlib
//   learning_rate 7e-4, value_coef 0.5, max_grad_norm 0.5,      A2C's here, whose loss is of the
//   RMSProp with alpha 0.99 and eps 1e-5                        same size
//   gae_lambda 1, which is V-trace's lambda                     the paper
//   log_interval 25
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "shoal/learn/asynchronous/asynchronous_options.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/config/preset.h"

namespace shoal::learn {

struct ImpalaConfig : LearnerConfig, AsynchronousOptions {
  static constexpr std::string_view kAlgorithm = "impala";

  ImpalaConfig() {
    log_interval = 25;
    num_steps = 20;
    gae_lambda = 1;
    learning_rate = 7e-4;
    entropy_coef = 0.01;
    advantage_normalization = AdvantageNormalization::kNone;
    optimizer = OptimizerKind::kRmsProp;
  }

  bool operator==(const ImpalaConfig&) const = default;

  /// "default", and one for each task that it was tuned for.
  static std::span<const Preset> presets();
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const ImpalaConfig& config);

template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, ImpalaConfig>
void for_each_option(Config& c, Visit&& visit) {
  for_each_actor_critic_option(c, visit);
  for_each_asynchronous_option(c, visit);
}

}  // namespace shoal::learn
