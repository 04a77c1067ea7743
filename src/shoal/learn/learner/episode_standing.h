// What runs along with the episodes of a learner's environments, and how they begin: parts of every
// learner that steps environments.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shoal/collect/episode_stats.h"
#include "shoal/collect/reward_scaler.h"
#include "shoal/env/space.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/network/philox.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

/// Returns and lengths, and the discounted return of the reward normaliser; a value.
struct EpisodeStanding {
  EpisodeStanding(int num_envs, const LearnerConfig& config);

  /// Adds all of it to `state`.
  void save(const LearnerConfig& config, LearnerState& state) const;
  /// Takes over what save() wrote. Throws InvalidArgument when it is not of as many environments.
  void load(const LearnerConfig& config, const LearnerState& state);

  collect::RewardScaler rewards;
  collect::EpisodeStats episodes;
};

/// Throws InvalidArgument when the spaces or the number of `envs` are not these.
void check_environments(const vector::VectorEnv& envs, const env::Space& observation,
                        const env::Space& action, int num_envs);

/// Seeds for a reset of environments `first` and on, the `turn`-th: a function of the random
/// numbers' seed.
std::vector<std::optional<std::uint64_t>> reset_seeds(const Philox& random, std::int64_t turn,
                                                      int num_envs, int first = 0);

}  // namespace shoal::learn
