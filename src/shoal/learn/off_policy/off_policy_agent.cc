#include "shoal/learn/off_policy/off_policy_agent.h"

#include "shoal/learn/learner/state_arrays.h"

namespace shoal::learn {

OffPolicyAgent::OffPolicyAgent(const env::Space& observation, const env::Space& action,
                               const OffPolicyConfig& config, std::uint64_t seed)
    : encoder_(observation, {.normalize = config.normalize_obs, .clip = config.clip_obs}),
      decoder_(action),
      random_(seed) {}

void OffPolicyAgent::decode(const shm::TensorView& actions, const shm::TensorView& to) const {
  decoder_.decode(actions, to);
}

void OffPolicyAgent::save(LearnerState& state) const {
  save_policy(parameters_, encoder_.moments(), state);
}

void OffPolicyAgent::load(const LearnerState& state) {
  load_policy(state, parameters_, encoder_.moments());
  parameters_changed();
}

}  // namespace shoal::learn
