// What a training run is told: the algorithm's numbers and those around it. In JSON, and in Python,
// all of them are one flat set of names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "shoal/learn/algorithm/algorithm_config.h"

namespace shoal::learn {

struct TrainConfig {
  AlgorithmConfig algorithm;  // which one, and its numbers

  std::uint64_t seed = 0;  // of everything random; below 2^63
  int num_envs = 8;        // environments that are trained on

  // Evaluation, on environments of its own, with the distribution's mode as the action
  std::int64_t eval_every =
      10'000;                // environment steps between two evaluations; 0: only at the end
  int eval_episodes = 10;    // of each of them
  int eval_envs = 10;        // environments they run in
  int final_episodes = 100;  // of the run's result, with the best policy; 0: no final evaluation

  /// Ends the run early: once an evaluation's mean return is at least this, final_episodes fresh
  /// episodes are run, and their mean has to be too. Without evaluation environments: the mean of
  /// the last 100 training episodes.
  std::optional<double> target_return;

  // Checkpoints
  /// How much of the run a power cut may cost; 20 times as long as the last save took to write, where
  /// that is more (a full replay of pictures), so that it takes at most a twentieth of the run. 0: after
  /// each iteration, whatever that costs.
  double save_every_seconds = 60;
  /// Environment steps, over all environments, after which all environments are reset with new
  /// seeds, so that a resume never repeats more (replayable_vector_env.h); but at least 10,000 of
  /// each environment. 0: never.
  std::int64_t replay_limit = 1'000'000;
  std::optional<std::int64_t>
      pause_at_step;  // stops, resumable, at the first iteration that ends there or later

  bool operator==(const TrainConfig&) const = default;

  LearnerConfig& learner() { return learner_config(algorithm); }
  const LearnerConfig& learner() const { return learner_config(algorithm); }
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const TrainConfig& config);

/// All fields, those of the algorithm among them; its name is "algorithm".
nlohmann::json to_flat_json(const TrainConfig& config);

/// Overwrites the fields that `json` names; where it names another algorithm, all of that one's are
/// its defaults first. What was written before there was a choice names none: PPO. Throws
/// InvalidArgument for a name that the algorithm has not, with the nearest one, and for an unsuitable
/// type.
void apply_overrides(const nlohmann::json& json, TrainConfig& config);

/// The same for what to_flat_json() wrote, in this version or an older one: options that are no more
/// are left out.
void apply_saved(nlohmann::json json, TrainConfig& config);

/// All names that an algorithm's runs take, in alphabetical order. Throws InvalidArgument for an
/// algorithm that there is not.
std::vector<std::string> config_names(std::string_view algorithm = "ppo");

}  // namespace shoal::learn
