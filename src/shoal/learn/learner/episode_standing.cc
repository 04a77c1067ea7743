#include "shoal/learn/learner/episode_standing.h"

#include <fmt/format.h>

#include "shoal/learn/learner/state_arrays.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

collect::RewardScalerOptions reward_options(const LearnerConfig& config) {
  collect::RewardForm form = collect::RewardForm::kRaw;
  if (config.normalize_reward) form = collect::RewardForm::kNormalized;
  if (config.sign_reward) form = collect::RewardForm::kSign;
  return {.form = form, .gamma = config.gamma, .clip = config.clip_reward};
}

}  // namespace

EpisodeStanding::EpisodeStanding(int num_envs, const LearnerConfig& config)
    : rewards(num_envs, reward_options(config)), episodes(num_envs) {}

void EpisodeStanding::save(const LearnerConfig& config, LearnerState& state) const {
  if (config.normalize_reward) save_moments("return", rewards.moments(), state.normalizer);
  state.episodes.push_back(named_array("return", episodes.running_return()));
  state.episodes.push_back(named_array("length", episodes.running_length()));
  state.episodes.push_back(named_array("discounted", rewards.running_return()));
  state.counters["episodes"] = episodes.count();
  state.counters["last_episodes"] = episodes_to_json(episodes.window());
}

void EpisodeStanding::load(const LearnerConfig& config, const LearnerState& state) {
  if (config.normalize_reward) load_moments("return", state.normalizer, rewards.moments());
  const std::size_t envs = rewards.running_return().size();
  rewards.restore(find_array<double>(state.episodes, "discounted", envs));
  episodes.restore(episodes_from_json(counter(state, "last_episodes")),
                   counter(state, "episodes").get<std::int64_t>(),
                   find_array<double>(state.episodes, "return", envs),
                   find_array<std::int64_t>(state.episodes, "length", envs));
}

void check_environments(const vector::VectorEnv& envs, const env::Space& observation,
                        const env::Space& action, int num_envs) {
  if (envs.num_envs() == num_envs && envs.single_observation_space() == observation &&
      envs.single_action_space() == action)
    return;
  throw InvalidArgument(fmt::format(
      "learn from {} environments with observations {} and actions {}: the learner was made for "
      "{} with {} and {}",
      envs.num_envs(), envs.single_observation_space().repr(), envs.single_action_space().repr(),
      num_envs, observation.repr(), action.repr()));
}

std::vector<std::optional<std::uint64_t>> reset_seeds(const Philox& random, std::int64_t turn,
                                                      int num_envs, int first) {
  std::vector<std::optional<std::uint64_t>> seeds;
  for (int i = first; i < first + num_envs; ++i) {
    // 31 bits: what every environment's own generator takes.
    const auto bits =
        random(Stream::kReset, static_cast<std::uint64_t>(turn), static_cast<std::uint32_t>(i));
    seeds.emplace_back(bits[0] >> 1);
  }
  return seeds;
}

}  // namespace shoal::learn
