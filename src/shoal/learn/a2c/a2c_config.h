// What A2C is told, with the defaults of Stable-Baselines3's A2C, version 2.9:
//
//   num_steps 5, learning_rate 7e-4, gamma 0.99, gae_lambda 1, value_coef 0.5, entropy_coef 0,
//   max_grad_norm 0.5, RMSProp with alpha 0.99 and eps 1e-5, no normalised advantages,
//   log_interval 100
//
// All but shards, overlap and those of ranks are options that every learner has. gae_lambda 1 is the n-step return of the paper
// (Mnih et al., 2016), less of it generalised advantage estimation. optimizer "rmsprop_tf" is what
// Stable-Baselines3 calls RMSpropTFLike, and advises to get results of older libraries.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/config/preset.h"
#include "shoal/learn/config/rank_options.h"

namespace shoal::learn {

struct A2cConfig : LearnerConfig {
  static constexpr std::string_view kAlgorithm = "a2c";

  A2cConfig() {
    log_interval = 100;
    num_steps = 5;
    gae_lambda = 1;
    learning_rate = 7e-4;
    advantage_normalization = AdvantageNormalization::kNone;
    optimizer = OptimizerKind::kRmsProp;
  }

  int shards = 0;  // of the environments, as PPO's
  RankOptions ranks = {};
  /// The next rollout is collected beside the update, with the weights from before it. The update
  /// takes it as if the weights of now had acted; IMPALA with max_lag 1 corrects for that.
  bool overlap = false;

  bool operator==(const A2cConfig&) const = default;

  /// "sb3", "zoo_atari", "atari", and one for each task that it was tuned for.
  static std::span<const Preset> presets();
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const A2cConfig& config);

template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, A2cConfig>
void for_each_option(Config& c, Visit&& visit) {
  for_each_actor_critic_option(c, visit);
  visit("shards", c.shards);
  for_each_rank_option(c.ranks, visit);
  visit("overlap", c.overlap);
}

}  // namespace shoal::learn
