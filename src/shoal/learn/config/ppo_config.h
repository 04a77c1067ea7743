// What PPO is told: every switch and number of the algorithm, with Stable-Baselines3's defaults.
//
// The switches are those of "The 37 Implementation Details of PPO" (Huang et al., 2022) that belong
// to the learner; those that belong to the environment (frame skip, life loss, frame stack, …) are
// wrappers around it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace shoal::learn {

/// How a number moves over the run: it stays, or falls linearly to zero with the steps that remain.
enum class Schedule : std::uint8_t { kConstant, kLinear };

enum class Activation : std::uint8_t { kTanh, kRelu };

/// Over what the advantages are brought to mean 0 and standard deviation 1.
enum class AdvantageNormalization : std::uint8_t { kNone, kMinibatch, kRollout };

struct PpoConfig {
  // Run
  std::int64_t total_steps =
      100'000;  // environment steps over all environments; the schedules end here

  // Rollout
  int num_steps = 2048;      // steps of each environment between two updates
  double gamma = 0.99;       // discount
  double gae_lambda = 0.95;  // generalised advantage estimation
  bool bootstrap_truncated =
      true;  // V(terminal observation) after a truncated step; false: as if terminated (CleanRL)

  // Update
  int batch_size = 64;  // of a minibatch, about: a rollout is split into equal ones
  int epochs = 10;
  double learning_rate = 3e-4;
  Schedule learning_rate_schedule = Schedule::kConstant;
  double clip_range = 0.2;  // of the probability ratio
  Schedule clip_range_schedule = Schedule::kConstant;
  std::optional<double> clip_range_value = {};  // clipped value loss within this distance of the
                                                // old value; none: unclipped
  bool pessimistic_value_clip =
      true;  // the larger of clipped and unclipped error (the original); false: the clipped (SB3)
  double value_coef = 0.5;  // of the mean squared error; CleanRL's 0.5 of half of it is 0.25 here
  double entropy_coef = 0.0;
  std::optional<double> target_kl =
      {};  // ends the update before a step whose approx_kl exceeds 1.5 times this
  double max_grad_norm = 0.5;  // global L2 norm; 0: not clipped
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-5;
  AdvantageNormalization advantage_normalization = AdvantageNormalization::kMinibatch;

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
      true;  // gain sqrt(2) hidden, 0.01 policy head, 1 value head; false: PyTorch's default
  double log_std_init = 0.0;  // Box actions: initial logarithm of the standard deviation
  bool fused = true;  // hand-written kernels where they cover the network; false: LibTorch autograd

  bool operator==(const PpoConfig&) const = default;
};

/// Throws InvalidArgument naming the first field whose value cannot be used, its value and its
/// limits.
void validate(const PpoConfig& config);

/// The value of a scheduled number when `remaining` (1 at the start, 0 at the end) of the run is to
/// come.
double scheduled(double initial, Schedule schedule, double remaining) noexcept;

/// The fields by name; schedules and the like by name too ("constant", "linear", "tanh", …), an
/// absent optional as null.
void to_json(nlohmann::json& json, const PpoConfig& config);
/// Overwrites the fields that `json` names. Throws InvalidArgument for an unknown name or an
/// unsuitable type.
void from_json(const nlohmann::json& json, PpoConfig& config);

}  // namespace shoal::learn
