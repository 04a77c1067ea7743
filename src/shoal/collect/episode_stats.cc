#include "shoal/collect/episode_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "shoal/os/error.h"

namespace shoal::collect {

EpisodeStats::EpisodeStats(int num_envs, std::size_t window)
    : return_(static_cast<std::size_t>(num_envs), 0.0),
      length_(static_cast<std::size_t>(num_envs), 0),
      window_(window) {}

void EpisodeStats::step(std::span<const double> reward, std::span<const std::uint8_t> terminated,
                        std::span<const std::uint8_t> truncated, std::span<const std::uint8_t> skip,
                        std::span<const std::uint8_t> fault) {
  for (std::size_t i = 0; i < return_.size(); ++i) {
    if (skip[i] != 0) continue;
    if (!fault.empty() && fault[i] != 0) {
      return_[i] = 0.0;
      length_[i] = 0;
      continue;
    }
    return_[i] += reward[i];
    ++length_[i];
    if (terminated[i] == 0 && truncated[i] == 0) continue;
    const Episode episode{static_cast<int>(i), return_[i], length_[i]};
    finished_.push_back(episode);
    finished_in_.push_back(steps_);
    last_.push_back(episode);
    if (last_.size() > window_) last_.pop_front();
    ++count_;
    return_[i] = 0.0;
    length_[i] = 0;
  }
  ++steps_;
}

void EpisodeStats::restart() noexcept {
  std::fill(return_.begin(), return_.end(), 0.0);
  std::fill(length_.begin(), length_.end(), 0);
}

std::vector<Episode> EpisodeStats::take_finished(std::vector<std::int64_t>* steps) {
  steps_ = 0;
  auto taken_in = std::exchange(finished_in_, {});
  if (steps != nullptr) *steps = std::move(taken_in);
  return std::exchange(finished_, {});
}

void EpisodeStats::forget_finished() noexcept {
  finished_.clear();
  finished_in_.clear();
  steps_ = 0;
}

double EpisodeStats::mean_return() const noexcept {
  if (last_.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const auto& e : last_) sum += e.episode_return;
  return sum / static_cast<double>(last_.size());
}

double EpisodeStats::mean_length() const noexcept {
  if (last_.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const auto& e : last_) sum += static_cast<double>(e.length);
  return sum / static_cast<double>(last_.size());
}

void EpisodeStats::restore(std::vector<Episode> window, std::int64_t count,
                           std::span<const double> running_return,
                           std::span<const std::int64_t> running_length) {
  if (running_return.size() != return_.size() || running_length.size() != length_.size()) {
    throw InvalidArgument(
        fmt::format("restore the running episodes of {} environments: got {} returns and {} "
                    "lengths; the state is that of "
                    "another number of environments",
                    return_.size(), running_return.size(), running_length.size()));
  }
  std::copy(running_return.begin(), running_return.end(), return_.begin());
  std::copy(running_length.begin(), running_length.end(), length_.begin());
  last_.assign(window.begin(), window.end());
  while (last_.size() > window_) last_.pop_front();
  forget_finished();
  count_ = count;
}

}  // namespace shoal::collect
