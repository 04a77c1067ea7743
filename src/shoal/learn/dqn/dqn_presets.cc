// DQN's presets. "sb3" is Stable-Baselines3's defaults, without double DQN, as it has none; "zoo_…" and "atari" are
// rl-baselines3-zoo's (hyperparams/dqn.yml), likewise ("zoo_atari" with pictures as by Stable-Baselines3's wrappers, "atari"
// as by Gymnasium's); "cleanrl_atari" is CleanRL's for DQN and Atari, whose replay of a
// million pictures takes 28 GB. Those of a task began as these and were tuned with this
// learner. Measured, as the mean of 100 greedy episodes on fresh environments:
//
//   CartPole-v1     seeds 0 to 9: 500.0 each, after 15,200 to 50,400 steps (median 37,600)
//   LunarLander-v3  seeds 0 to 9: 206 to 253 each, after 110,400 to 310,400 steps (median 170,400). With one update for four
//                   steps and gamma 0.99 three of five seeds got there
#include "shoal/learn/dqn/dqn_config.h"

namespace shoal::learn {
namespace {

constexpr std::string_view kZooAtari = R"({
      "num_envs": 1, "total_steps": 10000000, "double_dqn": false, "learning_rate": 1e-4,
      "batch_size": 32, "buffer_size": 100000, "learning_starts": 100000,
      "target_update_interval": 1000, "train_freq": 4, "gradient_steps": 1,
      "exploration_fraction": 0.1, "exploration_final": 0.01, "policy_hidden": [],
      "sign_reward": true, "eval_every": 1000000, "final_episodes": 30})";

constexpr Preset kPresets[] = {
    {"sb3", R"({"num_envs": 1, "total_steps": 1000000, "double_dqn": false})"},

    {"cleanrl_atari", R"({
      "num_envs": 1, "total_steps": 10000000, "double_dqn": false, "learning_rate": 1e-4,
      "batch_size": 32, "buffer_size": 1000000, "learning_starts": 80000, "td_loss": "mse",
      "target_update_interval": 1000, "train_freq": 4, "gradient_steps": 1, "max_grad_norm": 0,
      "exploration_fraction": 0.1, "exploration_final": 0.01, "policy_hidden": [],
      "sign_reward": true, "eval_every": 1000000, "final_episodes": 30})"},

    {"zoo_atari", kZooAtari},
    {"atari", kZooAtari},

    {"zoo_cartpole", R"({
      "num_envs": 1, "total_steps": 50000, "double_dqn": false, "learning_rate": 2.3e-3,
      "batch_size": 64, "buffer_size": 100000, "learning_starts": 1000,
      "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128,
      "exploration_fraction": 0.16, "exploration_final": 0.04, "policy_hidden": [256, 256]})"},

    {"zoo_lunarlander", R"({
      "num_envs": 1, "total_steps": 100000, "double_dqn": false, "learning_rate": 6.3e-4,
      "batch_size": 128, "buffer_size": 50000, "learning_starts": 0,
      "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1,
      "exploration_fraction": 0.12, "exploration_final": 0.1, "policy_hidden": [256, 256]})"},

    {"CartPole-v1", R"({
      "num_envs": 8, "total_steps": 100000, "learning_rate": 1e-3,
      "learning_rate_schedule": "linear", "batch_size": 64, "buffer_size": 100000,
      "learning_starts": 1000, "n_step": 3, "target_update_interval": 500, "train_freq": 4,
      "gradient_steps": 2, "exploration_fraction": 0.16, "exploration_final": 0.04,
      "policy_hidden": [128, 128], "eval_every": 5000, "target_return": 490})"},

    {"LunarLander-v3", R"({
      "num_envs": 8, "total_steps": 500000, "learning_rate": 5e-4,
      "learning_rate_schedule": "linear", "batch_size": 128, "buffer_size": 100000, "gamma": 0.995,
      "learning_starts": 5000, "n_step": 3, "dueling": true, "tau": 0.005,
      "target_update_interval": 8, "train_freq": 4, "gradient_steps": 4,
      "exploration_fraction": 0.3, "exploration_final": 0.02, "policy_hidden": [128, 128],
      "eval_every": 10000, "eval_episodes": 20, "target_return": 205})"},
};

}  // namespace

std::span<const Preset> DqnConfig::presets() { return kPresets; }

}  // namespace shoal::learn
