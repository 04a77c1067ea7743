// What an engine does around any environment, without a wrapper of its own.
#pragma once

#include <optional>
#include <utility>

namespace shoal::env {

/// A value; nothing of it by default.
struct EpisodeOptions {
  /// Return, length and duration of every episode that ends, of the rewards before clipping.
  bool statistics = false;
  /// Steps after which an episode is truncated; 0: no limit but the environment's own.
  int max_episode_steps = 0;
  /// Observations are the last so many, oldest first along a new leading axis; a reset fills all of
  /// them with its own. 0: observations as they are.
  int frame_stack = 0;
  /// Rewards are clipped to these bounds.
  std::optional<std::pair<double, double>> reward_clip = {};

  bool operator==(const EpisodeOptions&) const = default;
};

}  // namespace shoal::env
