// The names under which people look for a run's numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shoal/learn/learner/learner.h"
#include "shoal/learn/run/evaluator.h"

namespace shoal::learn {

/// Numbers that belong to one point of the run. Never NaN: what does not exist yet is left out.
struct ScalarRecord {
  std::int64_t step = 0;  // environment steps, over all environments
  double seconds = 0;     // of training so far
  std::vector<std::pair<std::string, double>> values;
};

/// Sums over the episodes that ended since the last record.
struct EndedEpisodes {
  std::int64_t count = 0;
  double return_sum = 0;
  double length_sum = 0;

  void add(std::span<const collect::Episode> episodes) noexcept;
};

/// One iteration, under Stable-Baselines3's names (rollout/, time/, train/) and CleanRL's (charts/,
/// losses/).
ScalarRecord scalars_of(const IterationStats& stats, const EndedEpisodes& ended, double seconds,
                        double steps_per_second);

/// One evaluation: eval/mean_reward, eval/std_reward, eval/mean_ep_length.
ScalarRecord scalars_of(const Evaluation& evaluation, std::int64_t step, double seconds);

}  // namespace shoal::learn
