// What each row of a rollout was worth, as learners of a policy and a value use it.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/collect/rollout.h"
#include "shoal/learn/config/learner_config.h"

namespace shoal::learn {

struct Advantages {
  /// By generalised advantage estimation (collect/gae.h) with the configuration's numbers;
  /// advantages normalised over the rollout where it says so. The rollout's values are in units of
  /// `unit`, what is estimated is in that of its rewards.
  void estimate(collect::Rollout& rollout, const LearnerConfig& config, float unit = 1.0F);

  /// The two parts of another way to estimate, before and after `advantage` and `returns` are
  /// written: the rows and room for both; normalisation over the rollout where it is told.
  void start(const collect::Rollout& rollout);
  void finish(const LearnerConfig& config);

  /// Of the returns by the values that the rollout was collected with, over `rows`; NaN when the
  /// returns do not vary.
  double explained_variance(collect::Rollout& rollout) const;

  std::vector<std::int32_t> rows;  // the valid ones, ascending; an update may shuffle them
  std::vector<float> advantage;    // of every row
  std::vector<float> returns;      // of every row
};

/// In place: mean 0, standard deviation 1 (unbiased, plus 1e-8). Fewer than two elements stay as
/// they are.
void normalize_advantages(std::span<float> advantage);

}  // namespace shoal::learn
