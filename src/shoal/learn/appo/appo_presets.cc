// APPO's presets. CartPole-v1's began as PPO's, with half of its epochs; LunarLander-v3's is PPO's.
#include "shoal/learn/appo/appo_config.h"

namespace shoal::learn {
namespace {

constexpr Preset kPresets[] = {
    {"default", R"({"num_envs": 32, "total_steps": 1000000})"},

    {"CartPole-v1", R"({
      "num_envs": 8, "total_steps": 200000, "num_steps": 32, "batch_size": 128, "epochs": 10,
      "learning_rate": 1e-3, "learning_rate_schedule": "linear", "clip_range": 0.2,
      "clip_range_schedule": "linear", "gamma": 0.98, "gae_lambda": 0.8, "entropy_coef": 0,
      "max_grad_norm": 0.5, "adam_eps": 1e-5, "eval_every": 5000, "target_return": 490})"},

    {"LunarLander-v3", R"({
      "num_envs": 32, "total_steps": 500000, "num_steps": 128, "batch_size": 256, "epochs": 6,
      "learning_rate": 5e-4, "learning_rate_schedule": "linear", "clip_range": 0.2,
      "gamma": 0.995, "gae_lambda": 0.98, "entropy_coef": 0.01, "max_grad_norm": 0.5,
      "adam_eps": 1e-5, "normalize_obs": true, "normalize_reward": true,
      "policy_hidden": [128, 128], "value_hidden": [128, 128], "log_interval": 1,
      "eval_every": 25000, "target_return": 225})"},
};

}  // namespace

std::span<const Preset> AppoConfig::presets() { return kPresets; }

}  // namespace shoal::learn
