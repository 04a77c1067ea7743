#include "shoal/learn/learner/agent.h"

#include <cstring>

#include "shoal/learn/learner/state_arrays.h"

namespace shoal::learn {

Agent::Agent(const env::Space& observation, const env::Space& action, const LearnerConfig& config,
             std::uint64_t seed, const Recurrence& recurrence)
    : encoder_(observation, {.normalize = config.normalize_obs, .clip = config.clip_obs}),
      decoder_(action),
      policy_(encoder_, decoder_, config, seed, recurrence) {}

void Agent::act(std::span<const shm::TensorView> obs, std::span<float> memory,
                std::span<const shm::TensorView> actions, bool deterministic, std::uint64_t step) {
  const shm::TensorView chosen = rows_.actions(decoder_.spec(), obs.front().rows);
  policy_.act_apart(rows_.encode(encoder_, obs), memory, step, deterministic, chosen);
  decoder_.decode(chosen, actions[0]);
}

void Agent::decide(std::span<const shm::TensorView> obs, std::span<float> memory,
                   std::uint64_t step, const shm::TensorView& action, std::span<float> log_prob,
                   std::span<float> value) {
  const shm::TensorView chosen = rows_.actions(decoder_.spec(), obs.front().rows);
  policy_.act_with(rows_.encode(encoder_, obs), memory, step, chosen, log_prob, value);
  if (decoder_.is_continuous() && action.row.dtype == shm::DType::kF32) {
    std::memcpy(action.data, chosen.data, chosen.bytes());
  } else {
    decoder_.decode(chosen, action);
  }
}

void Agent::save(LearnerState& state) const {
  save_policy(policy_.parameters(), encoder_.moments(), state);
}

void Agent::load(const LearnerState& state) {
  load_policy(state, policy_.parameters(), encoder_.moments());
  policy_.model().parameters_changed();
}

std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action,
                                                 const LearnerConfig& config, std::uint64_t seed) {
  return std::make_unique<Agent>(observation, action, config, seed);
}

}  // namespace shoal::learn
