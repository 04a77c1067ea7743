// Recurrent PPO's presets. Source of "sb3": sb3-contrib's defaults, but for the LSTM's initial weights (lstm.h); of "cleanrl_atari_lstm": CleanRL's
// PPO with an LSTM. CartPoleNoVel-v1's began as rl-baselines3-zoo's (hyperparams/ppo_lstm.yml), whose
// rollouts of 32 steps leave 5 of 10 last policies below 475 here. Measured, as the mean of 100
// deterministic episodes of the last policy after all steps: seeds 0 to 9: 493 to 500.
#include "shoal/learn/recurrent_ppo/recurrent_ppo_config.h"

namespace shoal::learn {
namespace {

constexpr Preset kPresets[] = {
    {"sb3", R"({"num_envs": 1, "total_steps": 1000000})"},

    {"cleanrl_atari_lstm", R"({
      "num_envs": 8, "total_steps": 10000000, "num_steps": 128, "batch_size": 256, "epochs": 4,
      "learning_rate": 2.5e-4, "learning_rate_schedule": "linear", "entropy_coef": 0.01,
      "value_coef": 0.25, "clip_range": 0.1, "clip_range_value": 0.1, "bootstrap_truncated": false,
      "sign_reward": true, "policy_hidden": [], "value_hidden": [], "lstm_size": 128,
      "shared_lstm": true, "eval_every": 500000, "final_episodes": 30})"},

    {"CartPoleNoVel-v1", R"({
      "num_envs": 8, "total_steps": 100000, "num_steps": 128, "batch_size": 256, "epochs": 10,
      "learning_rate": 1e-3, "learning_rate_schedule": "linear", "clip_range_schedule": "linear",
      "normalize_obs": true, "normalize_reward": true, "lstm_size": 64,
      "eval_every": 10000, "target_return": 490})"},
};

}  // namespace

std::span<const Preset> RecurrentPpoConfig::presets() { return kPresets; }

}  // namespace shoal::learn
