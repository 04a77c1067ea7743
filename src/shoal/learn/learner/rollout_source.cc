#include "shoal/learn/learner/rollout_source.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

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

RolloutSource::RolloutSource(const env::Space& observation, const env::Space& action, int num_envs,
                             const LearnerConfig& config, Agent& agent)
    : observation_space_(observation),
      action_space_(action),
      num_envs_(num_envs),
      config_(config),
      agent_(agent),
      standing_{collect::RewardScaler(num_envs, reward_options(config)),
                collect::EpisodeStats(num_envs)} {}

void RolloutSource::attach(vector::VectorEnv& envs) {
  if (envs.num_envs() != num_envs_ || envs.single_observation_space() != observation_space_ ||
      envs.single_action_space() != action_space_) {
    throw InvalidArgument(fmt::format(
        "learn from {} environments with observations {} and actions {}: the learner was made for "
        "{} with {} and {}",
        envs.num_envs(), envs.single_observation_space().repr(), envs.single_action_space().repr(),
        num_envs_, observation_space_.repr(), action_space_.repr()));
  }
  collector_ = std::make_unique<collect::RolloutCollector>(
      envs,
      collect::RolloutCollectorParts{agent_.policy(), agent_.encoder(), agent_.decoder(),
                                     standing_.rewards, standing_.episodes},
      config_.num_steps);
}

void RolloutSource::begin(vector::VectorEnv& envs, std::int64_t turn) {
  attach(envs);
  std::vector<std::optional<std::uint64_t>> seeds;
  for (int i = 0; i < num_envs_; ++i) {
    // 31 bits: what every environment's own generator takes.
    const auto bits = agent_.policy().random()(Stream::kReset, static_cast<std::uint64_t>(turn),
                                               static_cast<std::uint32_t>(i));
    seeds.emplace_back(bits[0] >> 1);
  }
  collector_->reset(seeds);
}

void RolloutSource::resume(vector::VectorEnv& envs, const vector::Batch& current) {
  attach(envs);
  collector_->resume(current);
}

collect::RolloutCollector& RolloutSource::collector() {
  if (collector_ == nullptr)
    throw InvalidState("iterate before the learner has environments: call begin() first");
  return *collector_;
}

void RolloutSource::save(LearnerState& state) const {
  const auto& [rewards, episodes] = standing_;
  if (config_.normalize_reward) save_moments("return", rewards.moments(), state.normalizer);
  state.episodes.push_back(named_array("return", episodes.running_return()));
  state.episodes.push_back(named_array("length", episodes.running_length()));
  state.episodes.push_back(named_array("discounted", rewards.running_return()));
  state.counters["episodes"] = episodes.count();
  state.counters["last_episodes"] = episodes_to_json(episodes.window());
}

RolloutSource::Standing RolloutSource::read(const LearnerState& state) const {
  Standing standing = standing_;
  auto& [rewards, episodes] = standing;
  if (config_.normalize_reward) load_moments("return", state.normalizer, rewards.moments());
  const auto envs = static_cast<std::size_t>(num_envs_);
  rewards.restore(find_array<double>(state.episodes, "discounted", envs));
  episodes.restore(episodes_from_json(counter(state, "last_episodes")),
                   counter(state, "episodes").get<std::int64_t>(),
                   find_array<double>(state.episodes, "return", envs),
                   find_array<std::int64_t>(state.episodes, "length", envs));
  return standing;
}

}  // namespace shoal::learn
