// How good a policy is: the returns of whole episodes, without the bias toward short ones.
//
// Stopping at "the first n episodes to end" favours short episodes, because many of them fit beside
// one long one. Here every environment has a fixed number of episodes to give, and all of them
// count: n / num_envs each, the first n % num_envs environments one more. Environments that are
// done are stepped on, and ignored, until the others are.
//
// Determinism: the returns are a function of the policy, the environments, their number, the seed,
// and the number of episodes; not of the backend or the number of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shoal/learn/learner/acting_policy.h"
#include "shoal/shm/tensor.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

/// Writes an action for every row of raw observations; one view per leaf each. `is_first` is not 0
/// where an episode begins. `step` counts from 0 within the evaluation.
using Actor =
    std::function<void(std::span<const shm::TensorView> obs, std::span<const std::uint8_t> is_first,
                       std::span<const shm::TensorView> actions, std::uint64_t step)>;

struct EvaluationOptions {
  int episodes = 10;
  std::uint64_t seed = 0;  // environment i is reset with seed + i, once
  std::int64_t max_episode_steps =
      200'000;  // a longer episode is cut, counted, and reset: none runs for ever
  std::function<bool()> cancelled = {};  // asked before each step; may be empty
};

/// Episode j of `returns` and `lengths` is ordered by environment, then by time.
struct Evaluation {
  std::vector<double> returns;
  std::vector<std::int64_t> lengths;
  bool complete = false;  // false: cancelled, the lists are empty

  double mean_return() const noexcept;
  double std_return() const noexcept;  // of the population, as NumPy's std
  double mean_length() const noexcept;
};

/// Throws InvalidArgument for no episodes, or environments whose autoreset is disabled, and what
/// the environments throw.
Evaluation evaluate(vector::VectorEnv& envs, const Actor& actor, const EvaluationOptions& options);

/// The same of a policy, which remembers the episodes that it evaluates. `deterministic` as act() has it.
Evaluation evaluate(vector::VectorEnv& envs, ActingPolicy& policy, bool deterministic,
                    const EvaluationOptions& options);

}  // namespace shoal::learn
