// For tests: environments in this process, and learners of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "shoal/learn/algorithm/make_learner.h"
#include "shoal/learn/algorithm/presets.h"
#include "shoal/learn/run/evaluator.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

inline std::unique_ptr<vector::VectorEnv> serial_envs(
    const std::string& id, int num_envs,
    vector::AutoresetMode mode = vector::AutoresetMode::kNextStep) {
  return vector::VectorEnv::create(
      id, {.num_envs = num_envs, .backend = vector::Backend::kSerial, .autoreset_mode = mode});
}

/// A learner of their spaces and number, by the configuration of any algorithm.
inline std::unique_ptr<Learner> learner_for(const vector::VectorEnv& envs,
                                            const AlgorithmConfig& config, std::uint64_t seed) {
  return make_learner(envs.single_observation_space(), envs.single_action_space(), envs.num_envs(),
                      config, seed);
}

/// The best mean return of 20 episodes, every `eval_every` steps from `first` on, of a policy that the
/// task's preset trains: until it is `enough`, or the preset's steps are made.
inline double best_return_by_preset(const std::string& task, std::string_view algorithm,
                                    double enough, std::int64_t first, std::int64_t eval_every) {
  const TrainConfig config = preset(task, algorithm);
  const auto envs = serial_envs("shoal/" + task, config.num_envs);
  const auto evaluated = serial_envs("shoal/" + task, 10);
  const auto learner = learner_for(*envs, config.algorithm, 1);
  learner->begin(*envs);
  double best = -std::numeric_limits<double>::infinity();
  while (best < enough && learner->steps() < config.learner().total_steps) {
    learner->iterate();
    if (learner->steps() < first) continue;
    first += eval_every;
    best = evaluate(*evaluated, learner->acting(), true, {.episodes = 20, .seed = 5}).mean_return();
  }
  return best;
}

}  // namespace shoal::learn
