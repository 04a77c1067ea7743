// The parts of a Ppo, for its own source files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/collect/collector.h"
#include "shoal/learn/ppo/ppo.h"
#include "shoal/learn/ppo/ppo_policy.h"
#include "shoal/learn/ppo/ppo_update.h"

namespace shoal::learn {

struct Ppo::Impl {
  Impl(const env::Space& observation, const env::Space& action, int num_envs,
       const PpoConfig& config, std::uint64_t seed);

  /// Makes the collector for `envs`, which must be like those that the learner was made for.
  void attach(vector::VectorEnv& envs);
  void report(const UpdateStats& update, IterationStats& stats);
  /// Room for the policy's actions of so many rows, and the encoded observations; valid until the
  /// next call.
  shm::TensorView room_for_actions(std::int64_t rows);
  std::vector<shm::TensorView> encoded(std::span<const shm::TensorView> obs);

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
  // Room for act() and decide().
  std::vector<std::vector<std::byte>> act_obs;
  std::vector<std::byte> act_actions;
};

}  // namespace shoal::learn
