// How a learner that collects rollouts changes its policy with one: what makes an algorithm. The
// advantages of the rollout's rows come first; from there the algorithm goes on by minibatches.
//
// Threads: one at a time. Bits depend on the rollout, the parameters, the seed and the iteration
// alone.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "shoal/collect/rollout.h"
#include "shoal/collect/running_moments.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/actor_critic_loss.h"
#include "shoal/learn/learner/actor_critic_policy.h"
#include "shoal/learn/learner/advantages.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/learner/minibatch.h"
#include "shoal/learn/network/optimizer.h"

namespace shoal::learn {

/// Means over the minibatches of one update. NaN: the algorithm has no such number.
struct UpdateStats {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  double policy_loss = 0;
  double value_loss = 0;  // before its coefficient
  double entropy = 0;
  double loss = 0;
  double approx_kl = kNone;  // of the last epoch
  double clip_fraction = kNone;
  double grad_norm = 0;  // before clipping
  double explained_variance = 0;
  double learning_rate = 0;
  double clip_range = kNone;
  int epochs = 0;

  /// Adds those of one minibatch.
  void add(const Losses& losses, double norm);
};

/// Adds an update's numbers, and the policy's after it, to those of its iteration.
void report(const UpdateStats& update, const ActorCriticPolicy& policy, IterationStats& stats);

/// When in the run an update is.
struct UpdateTime {
  std::int64_t iteration;  // names its random numbers
  double remaining;        // of the run: 1 at its start, 0 at its end; for schedules
};

class RolloutUpdate {
 public:
  virtual ~RolloutUpdate() = default;
  RolloutUpdate(const RolloutUpdate&) = delete;
  RolloutUpdate& operator=(const RolloutUpdate&) = delete;

  /// Changes the policy's parameters.
  UpdateStats run(collect::Rollout& rollout, const UpdateTime& time);

  /// All that it keeps from one update to the next: the optimiser, and of the returns what the
  /// algorithm scales them by; of no size where it does not.
  Optimizer& optimizer() noexcept { return *optimizer_; }
  collect::RunningMoments& returns() noexcept { return returns_; }

 protected:
  /// Borrows the policy. Without an optimiser it has the one that the configuration names.
  RolloutUpdate(ActorCriticPolicy& policy, const LearnerConfig& config,
                std::unique_ptr<Optimizer> optimizer = nullptr);

  /// What the rollout's rows were worth, into `advantages_`: by generalised advantage estimation,
  /// unless the algorithm has another way.
  virtual void estimate(collect::Rollout& rollout);

  /// Learns from the rows of `advantages_`, of which there may be none. `stats` has the learning
  /// rate and the explained variance, and takes the rest.
  virtual void learn(collect::Rollout& rollout, const UpdateTime& time, UpdateStats& stats) = 0;

  ActorCriticPolicy& policy_;
  const LearnerConfig config_;
  const LossCoefficients coefficients_;
  const std::unique_ptr<Optimizer> optimizer_;
  collect::RunningMoments returns_{0};
  Advantages advantages_;
  Minibatch batch_;
};

}  // namespace shoal::learn
