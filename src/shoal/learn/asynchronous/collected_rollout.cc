#include "shoal/learn/asynchronous/collected_rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "shoal/learn/learner/state_arrays.h"
#include "shoal/os/error.h"
#include "shoal/shm/tensor.h"

namespace shoal::learn {
namespace {

constexpr const char* kWaiting = "waiting_rollouts";

std::string prefix_of(std::size_t index) { return fmt::format("waiting.{}.", index); }

template <class T>
shm::TensorView view_of(std::span<T> values) {
  return {reinterpret_cast<std::byte*>(values.data()),
          static_cast<std::int64_t>(values.size()),
          {shm::dtype_of<T>(), {}}};
}

std::vector<std::int64_t> shape_of(const shm::TensorView& view) {
  std::vector<std::int64_t> shape{view.rows};
  shape.insert(shape.end(), view.row.shape.begin(), view.row.shape.end());
  return shape;
}

}  // namespace

std::vector<std::pair<std::string, shm::TensorView>> arrays_of(collect::Rollout& rollout) {
  std::vector<std::pair<std::string, shm::TensorView>> arrays{
      {"action", rollout.action()},
      {"reward", view_of(rollout.reward())},
      {"value", view_of(rollout.value())},
      {"next_value", view_of(rollout.next_value())},
      {"logp", view_of(rollout.logp())},
      {"terminated", view_of(rollout.terminated())},
      {"truncated", view_of(rollout.truncated())},
      {"valid", view_of(rollout.valid())}};
  for (std::size_t leaf = 0; leaf < rollout.obs().size(); ++leaf) {
    shm::TensorView obs = rollout.obs()[leaf];
    obs.rows += rollout.envs();  // where it ended
    arrays.emplace_back(fmt::format("obs.{}", leaf), obs);
  }
  return arrays;
}

void CollectedRollout::save(std::size_t index, LearnerState& state) {
  const std::string prefix = prefix_of(index);
  for (const auto& [name, view] : arrays_of(rollout))
    state.episodes.push_back(
        {prefix + name, {view.row.dtype, shape_of(view)}, {view.data, view.data + view.bytes()}});
  if (obs_moments.size() > 0) save_moments(prefix + "obs", obs_moments, state.episodes);
  state.counters[kWaiting].push_back({{"version", version},
                                      {"ends_are_replaced", rollout.ends_are_replaced()},
                                      {"finished", episodes_to_json(finished)},
                                      {"episodes", episodes},
                                      {"return_mean", json_of(episode_return_mean)},
                                      {"length_mean", json_of(episode_length_mean)}});
}

void CollectedRollout::load(std::size_t index, const LearnerState& state) {
  const std::string prefix = prefix_of(index);
  for (const auto& [name, view] : arrays_of(rollout)) {
    const auto found = std::ranges::find(state.episodes, prefix + name, &NamedArray::name);
    const shm::TensorSpec wanted{view.row.dtype, shape_of(view)};
    if (found == state.episodes.end() || found->spec != wanted ||
        found->bytes.size() != view.bytes())
      throw InvalidArgument(
          fmt::format("load a learner's state: {}{} is not there, or not of this learner's shape",
                      prefix, name));
    std::memcpy(view.data, found->bytes.data(), view.bytes());
  }
  if (obs_moments.size() > 0) load_moments(prefix + "obs", state.episodes, obs_moments);
  const auto& its = counter(state, kWaiting).at(index);
  version = its.at("version").get<std::int64_t>();
  rollout.replace_ends(its.value("ends_are_replaced", false));  // absent from older checkpoints
  finished = episodes_from_json(its.at("finished"));
  episodes = its.at("episodes").get<std::int64_t>();
  episode_return_mean = number_of(its.at("return_mean"));
  episode_length_mean = number_of(its.at("length_mean"));
}

std::size_t CollectedRollout::count_in(const LearnerState& state) {
  if (!state.counters.contains(kWaiting))
    throw InvalidArgument(
        "load a learner's state: it has no rollouts that wait, since its run collected and updated "
        "in "
        "turns: go on with overlap = false");
  return counter(state, kWaiting).size();
}

void CollectedRollout::report(IterationStats& stats) {
  stats.finished = std::move(finished);
  stats.episodes = episodes;
  stats.episode_return_mean = episode_return_mean;
  stats.episode_length_mean = episode_length_mean;
}

}  // namespace shoal::learn
