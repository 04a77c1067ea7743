// What a training run sees of a learner, whichever its algorithm is: begin(), then iterate() until
// enough steps are made.
//
// Resume: a new learner that loads the state() saved after an iteration, and is given environments
// that stand where they stood then (replayable_vector_env.h brings them there), continues
// identically by resume(): episodes go on in the middle.
//
// Threads: one thread at a time. Acting through acting() while another thread iterates is a race.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "shoal/collect/episode_stats.h"
#include "shoal/learn/checkpoint/learner_state.h"
#include "shoal/learn/learner/acting_policy.h"
#include "shoal/vector/vector_env.h"

namespace shoal::learn {

/// What one iteration (rollout and update) did. Losses are means over the minibatches of the whole
/// update. NaN where the algorithm has no such number.
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
  /// Of the weights that the rollout was collected with: how many updates there were since. NaN
  /// where a rollout is always of the newest.
  double policy_lag = std::numeric_limits<double>::quiet_NaN();
  // Of learners whose collectors are on other hosts.
  std::optional<std::int64_t> collectors;  // that are there
  std::int64_t stale_steps = 0;            // so far, of rollouts that had become too old
  std::int64_t lost_rollouts = 0;          // so far, with the collectors that were at them
  // Of learners from a replay.
  double q_value = std::numeric_limits<double>::quiet_NaN();      // mean, of what was sampled
  double exploration = std::numeric_limits<double>::quiet_NaN();  // share of random actions
  double temperature = std::numeric_limits<double>::quiet_NaN();  // coefficient of the entropy
  std::optional<std::int64_t> updates;                            // steps along a gradient so far
  /// Whether the iteration learned; otherwise its losses are NaN.
  bool learned = true;
  double collect_seconds = 0;  // in which the learner collected, or waited for a rollout
  double update_seconds = 0;
  /// Of several ranks: whether they share the gradients of an update out.
  std::optional<bool> splits_update;
  /// With sync_fraction: steps of the rollout that ranks were not waited for, of all.
  std::optional<std::int64_t> steps_cut;

  /// What of an iteration's numbers is of its episodes; those that have finished are taken.
  void take(collect::EpisodeStats& of) {
    finished = of.take_finished();
    take_means(of);
  }
  void take_means(const collect::EpisodeStats& of) {
    episodes = of.count();
    episode_return_mean = of.mean_return();
    episode_length_mean = of.mean_length();
  }
};

class Learner {
 public:
  virtual ~Learner() = default;

  /// Resets `envs`, of the spaces and number given to the constructor, and collects from it from now
  /// on. Borrows it until the next begin() or its end. Actors with their own (A3c): InvalidState.
  virtual void begin(vector::VectorEnv& envs) = 0;

  /// Collects from `envs` from now on, in the middle of their episodes: `current` is what their
  /// last reset or step gave, and the state that was loaded is the one saved at that point. No
  /// environment is reset, nothing that runs along with an episode (its return and length, the
  /// discounted return of the reward normaliser, a pending autoreset) begins anew. Borrows like
  /// begin(). Throws InvalidArgument when spaces or number differ.
  virtual void resume(vector::VectorEnv& envs, const vector::Batch& current) = 0;

  /// Collects experience and updates the policy with it. Throws InvalidState before begin(), and
  /// what the environments throw; the state is then that of the last finished iteration except for
  /// what the environments saw.
  virtual IterationStats iterate() = 0;

  /// To be called often while whoever trains does something else than iterate(): looks after those that
  /// learn beside it, and throws what ends the run.
  virtual void attend() {}

  /// When it returns, no step of the environments is under way, and none begins before the next
  /// iterate(): what steps them in a thread of its own leaves them where a resume can go on.
  virtual void rest() const noexcept {}

  virtual std::int64_t steps() const noexcept = 0;
  virtual std::int64_t iteration() const noexcept = 0;

  /// What acts as the learner does now; until the next iterate(), begin() or load.
  virtual ActingPolicy& acting() = 0;

  /// Everything that iterate() reads or writes, apart from the environments. As rest().
  virtual LearnerState state() const = 0;
  /// As much of it as load_policy() takes, and the counters; more where that costs nothing.
  virtual LearnerState policy_state() const { return state(); }
  /// Throws InvalidArgument when names, shapes or types are not this learner's. Strong guarantee.
  virtual void load_state(const LearnerState& state) = 0;
  /// Only the policy and the normaliser, for evaluation.
  virtual void load_policy(const LearnerState& state) = 0;
};

}  // namespace shoal::learn
