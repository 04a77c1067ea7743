// What every learner is told: the numbers of the run, the rollout, the optimiser, observations and
// rewards, and the network. An algorithm's own configuration adds its switches and numbers.
//
// The switches are those of "The 37 Implementation Details of PPO" (Huang et al., 2022) that belong
// to the learner; those that belong to the environment (frame skip, life loss, frame stack, …) are
// wrappers around it.
#pragma once

#include <cstdint>
#include <vector>

namespace shoal::learn {

/// How a number moves over the run: it stays, or falls linearly to zero with the steps that remain.
enum class Schedule : std::uint8_t { kConstant, kLinear };

enum class Activation : std::uint8_t { kTanh, kRelu };

/// What the layers of pictures multiply; they add in float32, and all else is float32.
enum class Precision : std::uint8_t { kFloat32, kBfloat16 };

/// Over what the advantages are brought to mean 0 and standard deviation 1.
enum class AdvantageNormalization : std::uint8_t { kNone, kMinibatch, kRollout };

/// What turns gradients into steps (adam.h, rmsprop.h).
enum class OptimizerKind : std::uint8_t { kAdam, kRmsProp, kRmsPropTf };

/// Defaults are those of Stable-Baselines3's PPO.
struct LearnerConfig {
  // Run
  std::int64_t total_steps =
      100'000;           // environment steps over all environments; the schedules end here
  int log_interval = 1;  // iterations between two records of what was measured

  // Rollout
  int num_steps = 2048;      // steps of each environment between two updates
  double gamma = 0.99;       // discount
  double gae_lambda = 0.95;  // generalised advantage estimation
  bool bootstrap_truncated =
      true;  // V(terminal observation) after a truncated step; false: as if terminated (CleanRL)

  // Update
  double learning_rate = 3e-4;
  Schedule learning_rate_schedule = Schedule::kConstant;
  double value_coef = 0.5;  // of the mean squared error; CleanRL's 0.5 of half of it is 0.25 here
  double entropy_coef = 0.0;
  Schedule entropy_coef_schedule = Schedule::kConstant;
  double max_grad_norm = 0.5;  // global L2 norm; 0: not clipped
  AdvantageNormalization advantage_normalization = AdvantageNormalization::kMinibatch;

  // Optimiser
  OptimizerKind optimizer = OptimizerKind::kAdam;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-5;
  double rmsprop_alpha = 0.99;  // what the average of squared gradients keeps in a step
  double rmsprop_eps = 1e-5;    // added to the root; "rmsprop_tf" adds it under the root

  // Observations and rewards
  bool normalize_obs = false;     // by running mean and variance, per element
  double clip_obs = 10.0;         // normalised observations lie in [-clip_obs, clip_obs]
  bool normalize_reward = false;  // by the running standard deviation of the discounted return
  double clip_reward = 10.0;      // normalised rewards lie in [-clip_reward, clip_reward]
  bool sign_reward = false;       // the reward's sign instead of its value (Atari)

  // Network
  std::vector<int> policy_hidden = {64, 64};
  std::vector<int> value_hidden = {64, 64};
  bool shared_hidden = false;  // one MLP (policy_hidden) under both heads
  Activation activation = Activation::kTanh;
  bool orthogonal_init =
      true;  // gain sqrt(2) hidden, 0.01 policy head, value_gain; false: PyTorch's default
  double value_gain = 1.0;    // of the value head's initial weights
  double log_std_init = 0.0;  // Box actions: initial logarithm of the standard deviation
  Precision precision = Precision::
      kFloat32;  // of pictures; bfloat16: factors of 8 significant bits, about twice as fast
  double pixel_mean = 0.0;  // taken from pixels, which are scaled to [0, 1], before the first layer

  bool operator==(const LearnerConfig&) const = default;
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const LearnerConfig& config);

/// The configuration, of any algorithm, after its validate().
template <class Config>
const Config& validated(const Config& config) {
  validate(config);
  return config;
}

/// The value of a scheduled number when `remaining` (1 at the start, 0 at the end) of the run is to
/// come.
double scheduled(double initial, Schedule schedule, double remaining) noexcept;

/// Calls visit(name, field) for each field that every learner reads.
template <class Config, class Visit>
void for_each_option_of_all(Config& c, Visit&& visit) {
  visit("total_steps", c.total_steps);
  visit("log_interval", c.log_interval);
  visit("num_steps", c.num_steps);
  visit("gamma", c.gamma);
  visit("bootstrap_truncated", c.bootstrap_truncated);
  visit("learning_rate", c.learning_rate);
  visit("learning_rate_schedule", c.learning_rate_schedule);
  visit("max_grad_norm", c.max_grad_norm);
  visit("optimizer", c.optimizer);
  visit("adam_beta1", c.adam_beta1);
  visit("adam_beta2", c.adam_beta2);
  visit("adam_eps", c.adam_eps);
  visit("rmsprop_alpha", c.rmsprop_alpha);
  visit("rmsprop_eps", c.rmsprop_eps);
  visit("normalize_obs", c.normalize_obs);
  visit("clip_obs", c.clip_obs);
  visit("normalize_reward", c.normalize_reward);
  visit("clip_reward", c.clip_reward);
  visit("sign_reward", c.sign_reward);
  visit("policy_hidden", c.policy_hidden);
  visit("activation", c.activation);
  visit("orthogonal_init", c.orthogonal_init);
}

/// The same with those of learners of a policy and its value: all fields.
template <class Config, class Visit>
void for_each_actor_critic_option(Config& c, Visit&& visit) {
  for_each_option_of_all(c, visit);
  visit("gae_lambda", c.gae_lambda);
  visit("value_coef", c.value_coef);
  visit("entropy_coef", c.entropy_coef);
  visit("entropy_coef_schedule", c.entropy_coef_schedule);
  visit("advantage_normalization", c.advantage_normalization);
  visit("value_hidden", c.value_hidden);
  visit("shared_hidden", c.shared_hidden);
  visit("value_gain", c.value_gain);
  visit("log_std_init", c.log_std_init);
  visit("precision", c.precision);
  visit("pixel_mean", c.pixel_mean);
}

}  // namespace shoal::learn
