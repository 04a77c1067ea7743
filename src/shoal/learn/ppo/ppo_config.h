// What PPO is told: every switch and number of the algorithm, with Stable-Baselines3's defaults.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/config/preset.h"
#include "shoal/learn/config/rank_options.h"

namespace shoal::learn {

struct PpoConfig : LearnerConfig {
  static constexpr std::string_view kAlgorithm = "ppo";

  int batch_size = 64;  // of a minibatch, about: a rollout is split into equal ones
  int epochs = 10;
  double clip_range = 0.2;  // of the probability ratio
  Schedule clip_range_schedule = Schedule::kConstant;
  std::optional<double> clip_range_value = {};  // clipped value loss within this distance of the
                                                // old value; none: unclipped
  bool pessimistic_value_clip =
      true;  // the larger of clipped and unclipped error (the original); false: the clipped (SB3)
  /// Values, advantages and returns anew before each epoch but the first, by the network of then.
  bool recompute_advantages = false;
  /// The value head learns returns divided by their running standard deviation (their mean is kept);
  /// advantages are in the unit of the rewards.
  bool normalize_returns = false;
  std::optional<double> target_kl =
      {};  // ends the update before a step whose approx_kl exceeds 1.5 times this
  int shards =
      0;  // of the environments, kept apart for the same bits on any number of ranks that goes
          // into it; 0: one for each rank
  RankOptions ranks = {};
  /// The next rollout is collected beside the update, with the weights from before it. The ratio
  /// is by the log-probabilities of the weights that acted, as ever.
  bool overlap = false;

  bool operator==(const PpoConfig&) const = default;

  /// "sb3", "cleanrl", …, and one for each task that it was tuned for.
  static std::span<const Preset> presets();
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const PpoConfig& config);

/// Calls visit(name, field) for each that its kin have, too.
template <class Config, class Visit>
void for_each_option_of_update(Config& c, Visit&& visit) {
  for_each_actor_critic_option(c, visit);
  visit("batch_size", c.batch_size);
  visit("epochs", c.epochs);
  visit("clip_range", c.clip_range);
  visit("clip_range_schedule", c.clip_range_schedule);
  visit("clip_range_value", c.clip_range_value);
  visit("pessimistic_value_clip", c.pessimistic_value_clip);
  visit("recompute_advantages", c.recompute_advantages);
  visit("normalize_returns", c.normalize_returns);
  visit("target_kl", c.target_kl);
}

template <class Config, class Visit>
  requires std::is_same_v<std::remove_const_t<Config>, PpoConfig>
void for_each_option(Config& c, Visit&& visit) {
  for_each_option_of_update(c, visit);
  visit("shards", c.shards);
  for_each_rank_option(c.ranks, visit);
  visit("overlap", c.overlap);
}

}  // namespace shoal::learn
