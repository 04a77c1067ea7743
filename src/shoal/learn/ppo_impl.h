// The parts of a Ppo, for its own source files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shoal/collect/collector.h"
#include "shoal/learn/ppo.h"
#include "shoal/learn/ppo_policy.h"
#include "shoal/learn/ppo_update.h"

namespace shoal::learn {

struct Ppo::Impl {
  Impl(const env::Space& observation, const env::Space& action, int num_envs,
       const PpoConfig& config, std::uint64_t seed);

  /// Makes the collector for `envs`, which must be like those that the learner was made for.
  void attach(vector::VectorEnv& envs);
  void report(const UpdateStats& update, IterationStats& stats);

  PpoConfig config;
  int num_envs;
  env::Space observation_space;
  env::Space action_space;
  collect::ObservationEncoder encoder;
  collect::ActionDecoder decoder;
  collect::RewardScaler rewards;
  collect::EpisodeStats episodes;
  PpoPolicy policy;
  PpoUpdate update;
  std::unique_ptr<collect::Collector> collector;
  std::int64_t steps = 0;
  std::int64_t iteration = 0;
  // Room for act().
  std::vector<std::vector<std::byte>> act_obs;
  std::vector<std::byte> act_actions;
};

}  // namespace shoal::learn
