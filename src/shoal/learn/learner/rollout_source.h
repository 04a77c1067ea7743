// Where a learner's rollouts come from: environments, stepped with an agent, and what runs along with
// their episodes (returns, lengths, the discounted return of the reward normaliser).
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "shoal/collect/episode_stats.h"
#include "shoal/collect/rollout_collector.h"
#include "shoal/env/space.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/episode_standing.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

class RolloutSource {
 public:
  /// What it keeps from one rollout to the next, apart from the agent.
  using Standing = EpisodeStanding;

  /// Borrows the agent. `first_env`: which of a run's environments its first one is.
  RolloutSource(const env::Space& observation, const env::Space& action, int num_envs,
                const LearnerConfig& config, Agent& agent, int first_env = 0);

  /// Resets `envs`, which it borrows, with seeds that follow from the agent's and from `turn`.
  /// Throws InvalidArgument when their spaces or number are not those that it was made for.
  void begin(vector::VectorEnv& envs, std::int64_t turn);

  /// Goes on in the middle of episodes: `current` is what the last reset or step of `envs` gave.
  /// Throws as begin().
  void resume(vector::VectorEnv& envs, const vector::Batch& current);

  bool has_environments() const noexcept { return collector_ != nullptr; }
  /// Throws InvalidState before begin() and resume().
  collect::RolloutCollector& collector();
  collect::EpisodeStats& episodes() noexcept { return standing_.episodes; }
  collect::RewardScaler& rewards() noexcept { return standing_.rewards; }

  void save(LearnerState& state) const;
  /// What save() wrote. Throws InvalidArgument when it is not of such a source.
  Standing read(const LearnerState& state) const;
  void put_back(Standing standing) { standing_ = std::move(standing); }

 private:
  void attach(vector::VectorEnv& envs);

  const env::Space observation_space_;
  const env::Space action_space_;
  const int num_envs_;
  const int first_env_;
  const LearnerConfig config_;
  Agent& agent_;
  Standing standing_;
  std::unique_ptr<collect::RolloutCollector> collector_;
};

}  // namespace shoal::learn
