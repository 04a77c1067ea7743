// How a learner that collects rollouts changes its policy with one: what makes an algorithm. The
// advantages of the rollout's rows come first; from there the algorithm goes on by minibatches.
//
// Where the environments of the run are in shards, each has its own part of every minibatch. All
// ranks of a group make the same steps, and stop at the same one.
//
// Threads: one at a time. Bits depend on the rollout, the parameters, the seed and the iteration
// alone; with shards on the rollouts of all ranks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "shoal/collect/rollout.h"
#include "shoal/collect/running_moments.h"
#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/learner/actor_critic_loss.h"
#include "shoal/learn/learner/actor_critic_policy.h"
#include "shoal/learn/learner/advantages.h"
#include "shoal/learn/learner/learner.h"
#include "shoal/learn/learner/minibatch.h"
#include "shoal/learn/learner/shards.h"
#include "shoal/learn/optimizer/optimizer.h"
#include "shoal/os/clock.h"

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

  /// From now on rollouts have the environments that are here by these shards, of the same number.
  void learn_from(Shards shards) { shards_ = std::move(shards); }

  /// What the last run spent on gradients here, apart from sums over ranks.
  struct GradientTime {
    double seconds = 0;
    int minibatches = 0;
  };
  std::size_t parameters() const { return policy_.parameters().flat().size(); }
  const GradientTime& gradient_time() const noexcept { return gradient_time_; }

  /// All that it keeps from one update to the next: the optimiser, and of the returns what the
  /// algorithm scales them by; of no size where it does not.
  Optimizer& optimizer() noexcept { return *optimizer_; }
  collect::RunningMoments& returns() noexcept { return returns_; }

 protected:
  /// Borrows the policy. Without an optimiser it has the one that the configuration names.
  RolloutUpdate(ActorCriticPolicy& policy, const LearnerConfig& config,
                std::unique_ptr<Optimizer> optimizer = nullptr, Shards shards = Shards());

  /// What the rollout's rows were worth, into `advantages_`: by generalised advantage estimation,
  /// unless the algorithm has another way.
  virtual void estimate(collect::Rollout& rollout);

  /// Learns from the rows of `advantages_`, of which there may be none. `stats` has the learning
  /// rate and the explained variance, and takes the rest.
  virtual void learn(collect::Rollout& rollout, const UpdateTime& time, UpdateStats& stats) = 0;

  /// The rows of one minibatch that each shard here has.
  using Parts = std::vector<Sequences>;

  /// Of so many minibatches, which `parts_of(k)` gives: their rows over all shards, and the moments
  /// of their advantages where those are normalised by minibatch.
  template <class PartsOf>
  std::vector<WholeBatch> wholes(std::size_t count, PartsOf&& parts_of) {
    std::vector<double> sums(count * static_cast<std::size_t>(shards_.here()) * kMoments);
    std::span<double> out = sums;
    std::vector<Parts> all;
    for (std::size_t k = 0; k < count; ++k) all.push_back(parts_of(k));
    for (int shard = 0; shard < shards_.here(); ++shard)
      for (std::size_t k = 0; k < count; ++k, out = out.subspan(kMoments))
        add_moments(all[k][static_cast<std::size_t>(shard)].rows, out.first<kMoments>());
    shards_.sum({}, sums);
    return wholes_of(std::span(sums).first(count * kMoments));
  }

  template <class L>
  struct Differentiated {
    L losses;
    double norm;  // of the gradient
  };
  /// The losses of a minibatch, whose gradient the batch has then. `loss(rows, derivatives)`
  /// returns them; they are doubles alone.
  template <class Loss>
  auto differentiate(collect::Rollout& rollout, const Parts& parts, const WholeBatch& whole,
                     Loss&& loss) {
    using L = std::invoke_result_t<Loss, LossRows, LossDerivatives>;
    if (shards_.whole()) {
      batch_.take(rollout, advantages_, parts.front());
      const L losses = loss(batch_.rows(), batch_.derivatives());
      return Differentiated<L>{losses, batch_.differentiate()};
    }
    using Numbers = std::array<double, sizeof(L) / sizeof(double)>;
    const auto start = os::Clock::now();
    std::vector<double> numbers;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      L losses{};
      if (parts[part].rows.empty()) {
        batch_.leave_out_part(part);
      } else {
        batch_.take(rollout, advantages_, parts[part], &whole);
        losses = loss(batch_.rows(), batch_.derivatives());
        batch_.differentiate_part(part);
      }
      const auto its = std::bit_cast<Numbers>(losses);
      numbers.insert(numbers.end(), its.begin(), its.end());
    }
    gradient_time_.seconds += os::seconds_since(start);
    ++gradient_time_.minibatches;
    const double norm = batch_.add_parts(shards_, numbers);
    Numbers sums;
    std::copy_n(numbers.begin(), sums.size(), sums.begin());
    return Differentiated<L>{std::bit_cast<L>(sums), norm};
  }

  ActorCriticPolicy& policy_;
  const LearnerConfig config_;
  LossCoefficients coefficients_;
  const std::unique_ptr<Optimizer> optimizer_;
  Shards shards_;
  collect::RunningMoments returns_{0};
  Advantages advantages_;
  std::vector<std::vector<std::int32_t>> rows_of_shards_;  // of `advantages_`, of those here
  std::int64_t total_rows_ = 0;                            // of all shards
  Minibatch batch_;

 private:
  static constexpr std::size_t kMoments = 3;  // rows, sum, sum of squares

  GradientTime gradient_time_;

  void add_moments(std::span<const std::int32_t> rows, std::span<double, kMoments> out) const;
  std::vector<WholeBatch> wholes_of(std::span<const double> moments) const;
  /// What all shards have to know of each other before they learn. Returns the explained variance.
  double agree(collect::Rollout& rollout);
};

}  // namespace shoal::learn
