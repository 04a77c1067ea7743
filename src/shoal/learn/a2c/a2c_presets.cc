// A2C's presets. "sb3" is Stable-Baselines3's defaults, "zoo_atari" and "atari" rl-baselines3-zoo's
// for Atari, with pictures as by Stable-Baselines3's wrappers and by Gymnasium's, and rarer evaluations, since whole games are long. Those of a task began as rl-baselines3-zoo's
// (hyperparams/a2c.yml) and were tuned with this learner for the fewest seconds to the task's target.
#include "shoal/learn/a2c/a2c_config.h"

namespace shoal::learn {
namespace {

constexpr std::string_view kZooAtari = R"({
      "num_envs": 16, "total_steps": 10000000, "entropy_coef": 0.01, "value_coef": 0.25,
      "optimizer": "rmsprop_tf", "sign_reward": true, "policy_hidden": [], "value_hidden": [],
      "eval_every": 500000, "final_episodes": 30})";

constexpr Preset kPresets[] = {
    {"sb3", R"({"num_envs": 1, "total_steps": 1000000})"},

    {"zoo_atari", kZooAtari},
    {"atari", kZooAtari},

    {"CartPole-v1", R"({
      "num_envs": 8, "total_steps": 500000, "learning_rate_schedule": "linear",
      "eval_every": 5000, "target_return": 490})"},

    {"Acrobot-v1", R"({
      "num_envs": 16, "total_steps": 500000, "learning_rate_schedule": "linear",
      "normalize_obs": true, "normalize_reward": true, "eval_every": 20000, "target_return": -85})"},

    {"Pendulum-v1", R"({
      "num_envs": 8, "total_steps": 1000000, "num_steps": 8, "optimizer": "adam",
      "learning_rate": 2e-3, "learning_rate_schedule": "linear", "gamma": 0.9, "gae_lambda": 0.9,
      "normalize_reward": true, "log_std_init": -0.5, "eval_every": 50000, "target_return": -165})"},

    {"MountainCar-v0", R"({
      "num_envs": 16, "total_steps": 1000000, "learning_rate": 2e-3,
      "learning_rate_schedule": "linear", "gae_lambda": 0.95, "normalize_obs": true,
      "normalize_reward": true, "eval_every": 50000, "target_return": -110})"},

    {"MountainCarContinuous-v0", R"({
      "num_envs": 4, "total_steps": 100000, "num_steps": 100, "normalize_obs": true,
      "normalize_reward": true, "log_std_init": 0.5, "log_interval": 10, "eval_every": 20000,
      "target_return": 90})"},
};

}  // namespace

std::span<const Preset> A2cConfig::presets() { return kPresets; }

}  // namespace shoal::learn
