// Sets of configuration values with a name, of each algorithm.
//
//   sb3, default        Stable-Baselines3's defaults; for algorithms that it has not, those of their
//                       configuration: what a task without a preset takes
//   cleanrl, …          of other libraries
//   atari               for games of Atari's
//   CartPole-v1, …      tuned for one task, and for its native twin shoal/CartPole-v1
//
// An algorithm's room lists its own (ppo_presets.cc, …), with their sources.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shoal/learn/algorithm/train_config.h"

namespace shoal::learn {

// All throw InvalidArgument, naming the nearest, for an algorithm that there is not.

/// All names; first the one that a task without a preset takes, then other libraries'.
std::vector<std::string> preset_names(std::string_view algorithm = "ppo");

/// The preset of this name. Throws InvalidArgument naming the nearest.
TrainConfig preset(std::string_view name, std::string_view algorithm = "ppo");

/// The name of the preset for an environment id: that of its task where there is one
/// ("shoal/CartPole-v1" and "module:CartPole-v1" are CartPole-v1's), "atari" for a game of Atari's
/// ("ALE/…", "…NoFrameskip-v4") where the algorithm has it, otherwise the algorithm's first.
std::string preset_for(std::string_view env_id, std::string_view algorithm = "ppo");

}  // namespace shoal::learn
