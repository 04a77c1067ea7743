// The learner of a configuration, whichever algorithm it is for.
//
//   const auto learner = make_learner(envs->single_observation_space(),
//                                     envs->single_action_space(), envs->num_envs(), config, seed);
//   learner->begin(*envs);
//   while (learner->steps() < total_steps) IterationStats stats = learner->iterate();
#pragma once

#include <cstdint>
#include <memory>

#include "shoal/env/space.h"
#include "shoal/group/group.h"
#include "shoal/learn/algorithm/algorithm_config.h"
#include "shoal/learn/asynchronous/rollout_supply.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/learn/learner/learner.h"

namespace shoal::learn {

/// Throws InvalidArgument for spaces that it cannot learn, or an invalid configuration. With a
/// `group` of several it learns with the other ranks, and has its share of `num_envs` environments;
/// InvalidArgument where the algorithm does not. With a `supply` its rollouts come from there;
/// InvalidArgument where the algorithm collects them itself, or is told `deterministic`.
std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const AlgorithmConfig& config,
                                      std::uint64_t seed,
                                      const std::shared_ptr<group::Group>& group = nullptr,
                                      const std::shared_ptr<RolloutSupply>& supply = nullptr);

/// What a learner whose collectors are on other hosts is told beside LearnerConfig. Throws
/// InvalidArgument as make_learner() with a supply.
const AsynchronousOptions& asynchronous_options(const AlgorithmConfig& config);

/// The environments that are this rank's of the `num_envs` of a run: the first, and how many.
/// Throws InvalidArgument as make_learner().
struct EnvRange {
  int first;
  int count;
};
EnvRange envs_of_rank(int num_envs, const AlgorithmConfig& config,
                      const std::shared_ptr<group::Group>& group);

/// What acts as such a learner does. Throws as make_learner().
std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action,
                                                 const AlgorithmConfig& config, std::uint64_t seed);

}  // namespace shoal::learn
