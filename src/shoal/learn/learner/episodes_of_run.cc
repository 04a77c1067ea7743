#include "shoal/learn/learner/episodes_of_run.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <tuple>

namespace shoal::learn {
namespace {

struct Ended {
  std::int64_t step;  // of the iteration
  collect::Episode episode;
};

}  // namespace

EpisodesOfRun::EpisodesOfRun(const collect::EpisodeStats& before)
    : window_(before.window().begin(), before.window().end()), count_(before.count()) {}

std::vector<collect::Episode> EpisodesOfRun::add_those_of_all(
    const Shards& shards, collect::EpisodeStats& episodes) const {
  std::vector<std::int64_t> steps;
  const auto finished = episodes.take_finished(&steps);
  std::vector<Ended> here;
  for (std::size_t i = 0; i < finished.size(); ++i) {
    here.push_back({steps[i], finished[i]});
    here.back().episode.env += shards.first_env();
  }
  std::vector<Ended> all;
  for (const auto& bytes : shards.group()->gather(std::as_bytes(std::span(here)))) {
    const std::size_t at = all.size();
    all.resize(at + bytes.size() / sizeof(Ended));
    if (!bytes.empty()) std::memcpy(all.data() + at, bytes.data(), bytes.size());
  }
  std::ranges::sort(all, {}, [](const Ended& e) { return std::tuple(e.step, e.episode.env); });
  std::vector<collect::Episode> window = window_;
  std::vector<collect::Episode> ended;
  for (const Ended& e : all) {
    window.push_back(e.episode);
    ended.push_back(e.episode);
  }
  if (shards.group()->rank() == 0) {
    const collect::EpisodeStats now = episodes;
    episodes.restore(std::move(window), count_ + static_cast<std::int64_t>(ended.size()),
                     now.running_return(), now.running_length());
  }
  return ended;
}

}  // namespace shoal::learn
