// Proximal policy optimisation (Schulman et al., 2017) on a vector environment.
//
//   Ppo ppo(envs->single_observation_space(), envs->single_action_space(), envs->num_envs(),
//           config, seed);
//   ppo.begin(*envs);
//   while (ppo.steps() < config.total_steps) IterationStats stats = ppo.iterate();
//
// Determinism: the same spaces, configuration, seed, number of environments and trajectories give
// the same parameters bit for bit on one machine, for any backend and number of workers: every
// random number is a function of the seed and of what it is for (environment, step, epoch), and no
// sum depends on scheduling.
//
// Resume: a new Ppo that loads the state() saved after an iteration, and is given environments that
// stand where they stood then (replayable_vector_env.h brings them there), continues identically by
// resume(): episodes go on in the middle.
//
// Threads: one thread at a time. Acting through act() while another thread iterates is a race.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/collect/episode_stats.h"
#include "shoal/env/space.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/config/ppo_config.h"
#include "shoal/shm/tensor.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

/// What one iteration (rollout and update) did. Losses are means over the minibatches of the whole
/// update.
struct IterationStats {
  std::int64_t iteration = 0;              // counted from 1
  std::int64_t steps = 0;                  // environment steps so far, over all environments
  std::int64_t episodes = 0;               // finished so far
  std::vector<collect::Episode> finished;  // during this iteration
  double episode_return_mean = 0;          // of the last 100 episodes; NaN before the first
  double episode_length_mean = 0;
  double policy_loss = 0;
  double value_loss = 0;  // before its coefficient
  double entropy = 0;
  double loss = 0;
  double approx_kl = 0;  // mean of (ratio - 1) - log ratio, the last epoch's
  double clip_fraction = 0;
  double explained_variance =
      0;  // of the returns by the values of the rollout; NaN when returns do not vary
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double clip_range = 0;
  std::optional<double> action_std;  // Box actions: mean standard deviation
  int epochs = 0;  // epochs begun: fewer than configured when target_kl ended the update
  double collect_seconds = 0;
  double update_seconds = 0;
};

class Ppo {
 public:
  /// Throws InvalidArgument for spaces that it cannot learn (which, and what it can), or an invalid
  /// configuration.
  Ppo(const env::Space& observation, const env::Space& action, int num_envs,
      const PpoConfig& config, std::uint64_t seed);
  ~Ppo();
  Ppo(Ppo&&) noexcept;
  Ppo& operator=(Ppo&&) noexcept;

  /// Resets `envs`, which must have the spaces and number given to the constructor, and collects
  /// from it from now on. Borrows `envs` until the next begin() or the destructor.
  void begin(vector::VectorEnv& envs);

  /// Collects from `envs` from now on, in the middle of their episodes: `current` is what their
  /// last reset or step gave, and the state that was loaded is the one saved at that point. No
  /// environment is reset, nothing that runs along with an episode (its return and length, the
  /// discounted return of the reward normaliser, a pending autoreset) begins anew. Borrows like
  /// begin(). Throws InvalidArgument when spaces or number differ.
  void resume(vector::VectorEnv& envs, const vector::Batch& current);

  /// Collects a rollout of num_steps and updates the policy with it. Throws InvalidState before
  /// begin(), and what the environments throw; the state is then that of the last finished
  /// iteration except for what the environments saw.
  IterationStats iterate();

  std::int64_t steps() const noexcept;
  std::int64_t iteration() const noexcept;
  const PpoConfig& config() const noexcept;

  /// Chooses actions for any number of rows of raw observations (one view per leaf) and writes them
  /// as the environment takes them (one view per leaf of the action space). `deterministic`: the
  /// distribution's mode; otherwise row i is sampled with random numbers of (seed, i, `step`),
  /// apart from those of training. Changes no state.
  void act(std::span<const shm::TensorView> obs, std::span<const shm::TensorView> actions,
           bool deterministic, std::uint64_t step = 0);

  /// As act(), but samples with the random numbers of training, and tells log-probabilities and
  /// values. The actions of a Box of float32 are written as they were drawn, not clipped.
  void decide(std::span<const shm::TensorView> obs, std::uint64_t step,
              const shm::TensorView& action, std::span<float> log_prob, std::span<float> value);
  /// Random numbers are those of `seed` from now on.
  void reseed(std::uint64_t seed) noexcept;

  /// Everything that iterate() reads or writes, apart from the environments.
  LearnerState state() const;
  /// Throws InvalidArgument when names, shapes or types are not this learner's. Strong guarantee.
  void load_state(const LearnerState& state);
  /// Only the policy and the normaliser, for evaluation.
  void load_policy(const LearnerState& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::learn
