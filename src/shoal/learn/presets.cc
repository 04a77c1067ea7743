#include "shoal/learn/presets.h"

#include <fmt/format.h>

#include <algorithm>

#include "shoal/learn/nearest_name.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

struct Preset {
  std::string_view name;
  std::string_view json;  // what differs from TrainConfig's defaults, whose PpoConfig is SB3's
};

constexpr Preset kPresets[] = {
    {"sb3", R"({"num_envs": 1, "total_steps": 1000000})"},

    {"cleanrl", R"({
      "num_envs": 4, "total_steps": 500000, "num_steps": 128, "batch_size": 128, "epochs": 4,
      "learning_rate": 2.5e-4, "learning_rate_schedule": "linear", "entropy_coef": 0.01,
      "clip_range_value": 0.2, "bootstrap_truncated": false})"},

    {"cleanrl_continuous", R"({
      "num_envs": 1, "total_steps": 1000000, "num_steps": 2048, "batch_size": 64, "epochs": 10,
      "learning_rate": 3e-4, "learning_rate_schedule": "linear", "clip_range_value": 0.2,
      "bootstrap_truncated": false, "normalize_obs": true, "normalize_reward": true})"},

    {"cleanrl_atari", R"({
      "num_envs": 8, "total_steps": 10000000, "num_steps": 128, "batch_size": 256, "epochs": 4,
      "learning_rate": 2.5e-4, "learning_rate_schedule": "linear", "entropy_coef": 0.01,
      "clip_range": 0.1, "clip_range_value": 0.1, "bootstrap_truncated": false,
      "sign_reward": true, "shared_hidden": true})"},

    {"CartPole-v1", R"({
      "num_envs": 8, "total_steps": 100000, "num_steps": 32, "batch_size": 256, "epochs": 20,
      "learning_rate": 1e-3, "learning_rate_schedule": "linear", "clip_range_schedule": "linear",
      "gamma": 0.98, "gae_lambda": 0.8, "target_return": 490})"},

    {"Acrobot-v1", R"({
      "num_envs": 16, "total_steps": 1000000, "num_steps": 256, "batch_size": 64, "epochs": 4,
      "gae_lambda": 0.94, "normalize_obs": true, "normalize_reward": true,
      "eval_every": 50000, "target_return": -85})"},

    {"Pendulum-v1", R"({
      "num_envs": 4, "total_steps": 200000, "num_steps": 1024, "batch_size": 64, "epochs": 10,
      "learning_rate": 1e-3, "gamma": 0.9, "gae_lambda": 0.95, "target_return": -180})"},

    {"MountainCar-v0", R"({
      "num_envs": 16, "total_steps": 1000000, "num_steps": 16, "batch_size": 64, "epochs": 4,
      "gae_lambda": 0.98, "normalize_obs": true, "normalize_reward": true,
      "eval_every": 50000, "target_return": -110})"},

    {"MountainCarContinuous-v0", R"({
      "num_envs": 8, "total_steps": 300000, "num_steps": 256, "batch_size": 256, "epochs": 10,
      "gamma": 0.9999, "gae_lambda": 0.95, "normalize_obs": true, "normalize_reward": true,
      "eval_every": 25000, "target_return": 90})"},

    {"LunarLander-v3", R"({
      "num_envs": 16, "total_steps": 1000000, "num_steps": 1024, "batch_size": 64, "epochs": 4,
      "gamma": 0.999, "gae_lambda": 0.98, "entropy_coef": 0.01,
      "eval_every": 50000, "target_return": 220})"},
};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& entry : kPresets) names.emplace_back(entry.name);
  return names;
}

TrainConfig preset(std::string_view name) {
  const auto* entry = std::ranges::find(kPresets, name, &Preset::name);
  if (entry == std::end(kPresets))
    throw InvalidArgument(fmt::format("there is no preset \"{}\"; the nearest is \"{}\"", name,
                                      nearest_name(name, preset_names())));
  TrainConfig config;
  apply_overrides(nlohmann::json::parse(entry->json), config);
  return config;
}

std::string preset_for(std::string_view env_id) {
  const auto start = env_id.find_last_of("/:");
  const auto task = start == std::string_view::npos ? env_id : env_id.substr(start + 1);
  const bool known = std::ranges::any_of(kPresets, [&](const Preset& entry) {
    return entry.name == task && task.find("-v") != std::string_view::npos;
  });
  return known ? std::string(task) : "sb3";
}

}  // namespace shoal::learn
