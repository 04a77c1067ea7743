// Returns and lengths of finished episodes.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace shoal::collect {

/// One finished episode: undiscounted sum of its raw rewards, and its number of steps.
struct Episode {
  int env = 0;
  double episode_return = 0;
  std::int64_t length = 0;
  bool operator==(const Episode&) const = default;
};

/// Accumulates the running episodes of `num_envs` environments and keeps the last `window` finished
/// ones.
class EpisodeStats {
 public:
  explicit EpisodeStats(int num_envs, std::size_t window = 100);

  /// Adds one step of every environment. Rows with `skip` set (autoreset rows) add nothing; rows
  /// with `fault` set drop their episode. Spans have num_envs elements; `fault` may be empty.
  void step(std::span<const double> reward, std::span<const std::uint8_t> terminated,
            std::span<const std::uint8_t> truncated, std::span<const std::uint8_t> skip,
            std::span<const std::uint8_t> fault = {});

  /// Forgets the episodes under way (the environments were reset), not the finished ones.
  void restart() noexcept;

  /// Episodes finished since the last call, in the order in which they ended, lower environment
  /// first within a step.
  std::vector<Episode> take_finished() { return take_finished(nullptr); }
  /// Also in which step since the last call each did, from 0.
  std::vector<Episode> take_finished(std::vector<std::int64_t>* steps);

  /// Where nobody takes them: they are kept until then.
  void forget_finished() noexcept;

  /// Mean over the last `window` finished episodes; NaN when none has finished.
  double mean_return() const noexcept;
  double mean_length() const noexcept;

  /// Finished episodes since construction.
  std::int64_t count() const noexcept { return count_; }

  /// For checkpoints: the finished episodes in the window, oldest first, and their total count.
  const std::deque<Episode>& window() const noexcept { return last_; }
  /// The episodes under way, one element an environment.
  std::span<const double> running_return() const noexcept { return return_; }
  std::span<const std::int64_t> running_length() const noexcept { return length_; }
  /// Puts back what the four above gave. Throws InvalidArgument for another number of environments.
  void restore(std::vector<Episode> window, std::int64_t count,
               std::span<const double> running_return,
               std::span<const std::int64_t> running_length);

 private:
  std::vector<double> return_;
  std::vector<std::int64_t> length_;
  std::deque<Episode> last_;
  std::vector<Episode> finished_;
  std::vector<std::int64_t> finished_in_;  // the step of each of those
  std::int64_t steps_ = 0;                 // since they were taken
  std::size_t window_;
  std::int64_t count_ = 0;
};

}  // namespace shoal::collect
