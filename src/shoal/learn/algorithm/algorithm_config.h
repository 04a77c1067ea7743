// The algorithms that there are. A new one is a room of its own, and a line in this file.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shoal/learn/a2c/a2c_config.h"
#include "shoal/learn/a3c/a3c_config.h"
#include "shoal/learn/appo/appo_config.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/dqn/dqn_config.h"
#include "shoal/learn/impala/impala_config.h"
#include "shoal/learn/ppo/ppo_config.h"
#include "shoal/learn/recurrent_ppo/recurrent_ppo_config.h"
#include "shoal/learn/sac/sac_config.h"

namespace shoal::learn {

/// The configuration of one algorithm, which says by its type which one it is. Each type has the
/// algorithm's name (kAlgorithm), its presets(), validate(), for_each_option() and make_learner().
using AlgorithmConfig = std::variant<PpoConfig, A2cConfig, A3cConfig, ImpalaConfig, AppoConfig,
                                     DqnConfig, SacConfig, RecurrentPpoConfig>;

/// "ppo", …, the default one first.
std::vector<std::string> algorithm_names();

/// An algorithm's defaults. Throws InvalidArgument naming the nearest for a name that is none.
AlgorithmConfig make_algorithm_config(std::string_view algorithm);

std::string_view algorithm_of(const AlgorithmConfig& config);

/// The part that all have.
LearnerConfig& learner_config(AlgorithmConfig& config);
const LearnerConfig& learner_config(const AlgorithmConfig& config);

}  // namespace shoal::learn
