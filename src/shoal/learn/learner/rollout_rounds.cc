#include "shoal/learn/learner/rollout_rounds.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace shoal::learn {

RolloutRounds::RolloutRounds(const Shards& shards, double fraction) : shards_(shards) {
  if (shards_.group() == nullptr || fraction == 1) return;
  needed_ = std::max(1, static_cast<int>(std::ceil(fraction * shards_.group()->size())));
}

collect::Rollout& RolloutRounds::collect(collect::RolloutCollector& collector,
                                         std::int64_t iteration, std::uint64_t first_step) {
  if (needed_ == 0) return collector.collect(first_step);
  group::Group& group = *shards_.group();
  const auto round = static_cast<std::uint64_t>(iteration);
  collect::Rollout& rollout = collector.collect(first_step, [&] { return group.enough(round); });
  const int missing = rollout.steps() - collector.taken();
  if (missing == 0) group.arrive(round, needed_);
  double cut = static_cast<double>(missing) * rollout.envs();
  group.sum(std::span(&cut, 1));
  cut_ = static_cast<std::int64_t>(cut);
  return rollout;
}

}  // namespace shoal::learn
