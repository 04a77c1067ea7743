// PPO's presets. Source of "sb3" and the cleanrl ones: the defaults in those programs; of "zoo_atari" and
// "atari": rl-baselines3-zoo (hyperparams/ppo.yml); MuJoCo's are tianshou's. Pictures of "zoo_atari" are made as by
// Stable-Baselines3's wrappers, those of "atari" as by Gymnasium's. Evaluations of Atari's are rarer, since whole games
// are long. Those of a task began as rl-baselines3-zoo's and were tuned with this learner for the fewest seconds to the task's
// target; Pong's for the return after 10,000,000 steps.
#include "shoal/learn/ppo/ppo_config.h"

namespace shoal::learn {
namespace {

constexpr std::string_view kZooAtari = R"({
      "num_envs": 8, "total_steps": 10000000, "num_steps": 128, "batch_size": 256, "epochs": 4,
      "learning_rate": 2.5e-4, "learning_rate_schedule": "linear", "entropy_coef": 0.01,
      "value_coef": 0.5, "clip_range": 0.1, "clip_range_schedule": "linear",
      "sign_reward": true, "policy_hidden": [], "value_hidden": [],
      "eval_every": 500000, "final_episodes": 30})";

// The settings of tianshou's benchmark of MuJoCo, but for the length: its runs have 3,000,000 steps, over which the
// learning rate falls, and what it publishes is the best of their first 1,000,000.
constexpr std::string_view kTianshouMujoco = R"({
      "num_envs": 64, "total_steps": 1000000, "num_steps": 32, "batch_size": 64, "epochs": 10,
      "learning_rate": 3e-4, "learning_rate_schedule": "linear", "adam_eps": 1e-8,
      "value_coef": 0.25, "advantage_normalization": "none", "recompute_advantages": true,
      "normalize_returns": true, "normalize_obs": true, "value_gain": 1.4142135623730951,
      "log_std_init": -0.5, "eval_every": 50000, "eval_episodes": 10})";

constexpr Preset kPresets[] = {
    {"sb3", R"({"num_envs": 1, "total_steps": 1000000})"},

    {"cleanrl", R"({
      "num_envs": 4, "total_steps": 500000, "num_steps": 128, "batch_size": 128, "epochs": 4,
      "learning_rate": 2.5e-4, "learning_rate_schedule": "linear", "entropy_coef": 0.01,
      "value_coef": 0.25, "clip_range_value": 0.2, "bootstrap_truncated": false})"},

    {"cleanrl_continuous", R"({
      "num_envs": 1, "total_steps": 1000000, "num_steps": 2048, "batch_size": 64, "epochs": 10,
      "learning_rate": 3e-4, "learning_rate_schedule": "linear", "value_coef": 0.25,
      "clip_range_value": 0.2, "bootstrap_truncated": false, "normalize_obs": true,
      "normalize_reward": true})"},

    {"cleanrl_atari", R"({
      "num_envs": 8, "total_steps": 10000000, "num_steps": 128, "batch_size": 256, "epochs": 4,
      "learning_rate": 2.5e-4, "learning_rate_schedule": "linear", "entropy_coef": 0.01,
      "value_coef": 0.25, "clip_range": 0.1, "clip_range_value": 0.1, "bootstrap_truncated": false,
      "sign_reward": true, "policy_hidden": [], "value_hidden": [],
      "eval_every": 500000, "final_episodes": 30})"},

    {"zoo_atari", kZooAtari},
    {"atari", kZooAtari},

    {"Pong-v5", R"({
      "num_envs": 8, "total_steps": 10000000, "num_steps": 128, "batch_size": 256, "epochs": 4,
      "learning_rate": 2.5e-4, "learning_rate_schedule": "linear", "entropy_coef": 0.005,
      "entropy_coef_schedule": "linear", "value_coef": 0.5, "clip_range": 0.1, "sign_reward": true,
      "policy_hidden": [], "value_hidden": [], "pixel_mean": 0.36, "eval_every": 1000000,
      "final_episodes": 100})"},

    {"tianshou_mujoco", kTianshouMujoco},
    {"HalfCheetah-v5", kTianshouMujoco},
    {"Hopper-v5", kTianshouMujoco},
    {"Walker2d-v5", kTianshouMujoco},

    {"CartPole-v1", R"({
      "num_envs": 8, "total_steps": 100000, "num_steps": 32, "batch_size": 128, "epochs": 20,
      "learning_rate": 1e-3, "learning_rate_schedule": "linear", "clip_range_schedule": "linear",
      "gamma": 0.98, "gae_lambda": 0.8, "eval_every": 5000, "target_return": 490})"},

    {"Acrobot-v1", R"({
      "num_envs": 32, "total_steps": 200000, "num_steps": 64, "batch_size": 256, "epochs": 8,
      "learning_rate": 1e-3, "learning_rate_schedule": "linear", "gae_lambda": 0.94,
      "normalize_obs": true, "normalize_reward": true, "eval_every": 20000, "target_return": -83})"},

    {"Pendulum-v1", R"({
      "num_envs": 16, "total_steps": 150000, "num_steps": 256, "batch_size": 256, "epochs": 20,
      "learning_rate": 1e-3, "learning_rate_schedule": "linear", "gamma": 0.9, "gae_lambda": 0.95,
      "normalize_reward": true, "eval_every": 25000, "target_return": -165})"},

    {"MountainCar-v0", R"({
      "num_envs": 32, "total_steps": 500000, "num_steps": 64, "batch_size": 256, "epochs": 8,
      "learning_rate": 1e-3, "learning_rate_schedule": "linear", "gae_lambda": 0.98,
      "normalize_obs": true, "normalize_reward": true, "eval_every": 50000, "target_return": -110})"},

    {"MountainCarContinuous-v0", R"({
      "num_envs": 16, "total_steps": 100000, "num_steps": 256, "batch_size": 256, "epochs": 10,
      "learning_rate": 1e-3, "learning_rate_schedule": "linear", "gamma": 0.9999,
      "gae_lambda": 0.9, "normalize_obs": true, "normalize_reward": true, "log_std_init": 0.5,
      "eval_every": 20000, "target_return": 92})"},

    {"LunarLander-v3", R"({
      "num_envs": 32, "total_steps": 500000, "num_steps": 128, "batch_size": 256, "epochs": 6,
      "learning_rate": 5e-4, "learning_rate_schedule": "linear", "gamma": 0.995,
      "gae_lambda": 0.98, "entropy_coef": 0.01, "normalize_obs": true, "normalize_reward": true,
      "policy_hidden": [128, 128], "value_hidden": [128, 128],
      "eval_every": 25000, "target_return": 225})"},

    {"SegmentedWorld-v0", R"({
      "num_envs": 16, "total_steps": 30000, "num_steps": 64, "batch_size": 256, "epochs": 15,
      "learning_rate": 1e-3, "learning_rate_schedule": "linear", "gamma": 0.9, "gae_lambda": 0.9,
      "entropy_coef": 0.005, "eval_every": 10000, "eval_envs": 4, "eval_episodes": 2,
      "final_episodes": 20})"},
};

}  // namespace

std::span<const Preset> PpoConfig::presets() { return kPresets; }

}  // namespace shoal::learn
