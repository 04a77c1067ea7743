#include "shoal/learn/asynchronous/rollout_actor.h"

#include <cstring>

#include "shoal/learn/learner/finite_experience.h"

namespace shoal::learn {

RolloutActor::RolloutActor(const env::Space& observation, const env::Space& action, int num_envs,
                           const LearnerConfig& config, std::uint64_t seed)
    : config_(config),
      num_envs_(num_envs),
      agent_(observation, action, config, seed),
      source_(observation, action, num_envs, config, agent_) {}

CollectedRollout RolloutActor::make_room() const {
  return {.rollout = {config_.num_steps, num_envs_, agent_.encoder().specs(),
                      agent_.policy().action_spec()},
          .obs_moments = agent_.encoder().moments()};
}

void RolloutActor::load_weights(std::span<const std::byte> parameters) {
  std::memcpy(agent_.policy().parameters().flat().data(), parameters.data(), parameters.size());
  agent_.policy().model().parameters_changed();
}

void RolloutActor::collect_into(CollectedRollout& collected, std::int64_t index) {
  auto& collector = source_.collector();
  const auto first_step =
      static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(config_.num_steps);
  require_finite(collector.collect(first_step), 0);  // no checkpoint is to have it
  collector.exchange(collected.rollout);
  collected.obs_moments = agent_.encoder().moments();
  auto& episodes = source_.episodes();
  collected.finished = episodes.take_finished();
  collected.episodes = episodes.count();
  collected.episode_return_mean = episodes.mean_return();
  collected.episode_length_mean = episodes.mean_length();
}

}  // namespace shoal::learn
