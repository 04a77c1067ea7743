#include "shoal/vector/step/episodes.h"

#include <bit>

#include "shoal/os/clock.h"

namespace shoal::vector {

Episodes::Episodes(const env::EpisodeOptions& options, const Rows& rows, int lo, int count)
    : counts_(options.statistics || options.max_episode_steps > 0),
      clips_(options.reward_clip.has_value()),
      limit_(options.max_episode_steps),
      low_(options.reward_clip ? options.reward_clip->first : 0),
      high_(options.reward_clip ? options.reward_clip->second : 0),
      rows_(rows),
      lo_(lo),
      episodes_(counts_ ? static_cast<std::size_t>(count) : 0) {}

void Episodes::start(int i) noexcept {
  episodes_[static_cast<std::size_t>(i)] = {.start_ns = os::now_ns()};
}

void Episodes::count(int lo, int hi) noexcept {
  for (int i = lo; i < hi; ++i) {
    Episode& episode = episodes_[static_cast<std::size_t>(i)];
    const auto row = static_cast<std::size_t>(lo_ + i);
    episode.total += rows_.reward[row];
    ++episode.length;
    if (limit_ > 0 && episode.length >= limit_) rows_.truncated[row] = 1;
    if ((rows_.terminated[row] | rows_.truncated[row]) == 0) continue;
    rows_.episode_return[row] = episode.total;
    rows_.episode_length[row] = episode.length;
    rows_.episode_seconds[row] = static_cast<double>(os::now_ns() - episode.start_ns) * 1e-9;
  }
}

// As numpy.clip: what is no number stays so.
void Episodes::clip(int lo, int hi) noexcept {
  for (int i = lo; i < hi; ++i) {
    double& reward = rows_.reward[static_cast<std::size_t>(lo_ + i)];
    if (reward < low_) reward = low_;
    if (reward > high_) reward = high_;
  }
}

void Episodes::save(int i, process::ByteWriter& out) const {
  const Episode episode = counts_ ? episodes_[static_cast<std::size_t>(i)] : Episode{};
  out.number(std::bit_cast<std::uint64_t>(episode.total));
  out.number(episode.length);
  out.number(counts_ ? os::now_ns() - episode.start_ns : 0);
}

void Episodes::load(int i, process::ByteReader& in) {
  Episode episode;
  episode.total = std::bit_cast<double>(in.number<std::uint64_t>());
  episode.length = in.number<std::int64_t>();
  episode.start_ns = os::now_ns() - in.number<std::uint64_t>();
  if (counts_) episodes_[static_cast<std::size_t>(i)] = episode;
}

}  // namespace shoal::vector
