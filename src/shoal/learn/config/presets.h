// Sets of configuration values with a name.
//
//   sb3                 Stable-Baselines3's PPO defaults
//   cleanrl             CleanRL's ppo.py            (discrete actions)
//   cleanrl_continuous  CleanRL's ppo_continuous_action.py
//   cleanrl_atari       CleanRL's ppo_atari.py      (the wrappers belong to the environment)
//   CartPole-v1, …      tuned for one task, and for its native twin shoal/CartPole-v1
//
// Source of the first four: the defaults in those programs. Those of a task began as
// rl-baselines3-zoo's and were tuned with this learner for the fewest seconds to the task's target.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shoal/learn/config/train_config.h"

namespace shoal::learn {

/// All names, in the order above.
std::vector<std::string> preset_names();

/// The preset of this name. Throws InvalidArgument naming the nearest.
TrainConfig preset(std::string_view name);

/// The name of the preset for an environment id: that of its task where there is one
/// ("shoal/CartPole-v1" and "module:CartPole-v1" are CartPole-v1's), otherwise "sb3".
std::string preset_for(std::string_view env_id);

}  // namespace shoal::learn
