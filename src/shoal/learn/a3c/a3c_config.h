// What A3C is told, with the defaults of A2C here (a2c_config.h), of which it is the asynchronous
// form: Mnih et al. (2016) have rollouts of 5 steps, discount 0.99, n-step returns, and RMSProp with
// statistics that all actors share.
//
//   entropy_coef 0.01         the paper
//   max_restarts 3 within restart_window 60 s      as a vector environment's FaultPolicy
//   step_timeout 60 s         as its deadline for a start
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/config/preset.h"

namespace shoal::learn {

struct A3cConfig : LearnerConfig {
  static constexpr std::string_view kAlgorithm = "a3c";

  A3cConfig() {
    log_interval = 100;
    num_steps = 5;
    gae_lambda = 1;
    learning_rate = 7e-4;
    entropy_coef = 0.01;
    advantage_normalization = AdvantageNormalization::kNone;
    optimizer = OptimizerKind::kRmsProp;
  }

  /// Actors that died and are replaced within restart_window seconds; the next one ends the run. 0:
  /// the first one does.
  int max_restarts = 3;
  double restart_window = 60;
  /// Seconds in which an actor has to step its environments once; one that does not ends the run. 0:
  /// no bound.
  double step_timeout = 60;

  bool operator==(const A3cConfig&) const = default;

  /// "default", and one for each task that it was tuned for.
  static std::span<const Preset> presets();
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const A3cConfig& config);

template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, A3cConfig>
void for_each_option(Config& c, Visit&& visit) {
  for_each_actor_critic_option(c, visit);
  visit("max_restarts", c.max_restarts);
  visit("restart_window", c.restart_window);
  visit("step_timeout", c.step_timeout);
}

}  // namespace shoal::learn
