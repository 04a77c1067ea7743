#include "shoal/learn/recurrent_ppo/recurrent_ppo.h"

#include "shoal/learn/config/option.h"
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/rollout_learner.h"
#include "shoal/learn/recurrent_ppo/recurrent_ppo_update.h"
#include "shoal/os/error.h"

namespace shoal::learn {

void validate(const RecurrentPpoConfig& config) {
  validate(static_cast<const PpoConfig&>(config));
  check_option(config.lstm_size >= 1 && config.lstm_size <= 65'536, "lstm_size", config.lstm_size,
               "from 1 to 65536");
  if (config.recompute_advantages)
    throw InvalidArgument(
        "configure training: recompute_advantages is true, and recurrent_ppo values a rollout "
        "once, "
        "with what it remembered while it acted; ppo has it");
  if (config.shared_hidden)
    throw InvalidArgument(
        "configure training: shared_hidden is true, and recurrent_ppo's hidden layers come after "
        "its LSTMs; shared_lstm is what it can share");
}

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const RecurrentPpoConfig& config,
                                      std::uint64_t seed) {
  validate(config);
  return std::make_unique<RolloutLearner>(
      observation, action, Shards(num_envs), config, seed,
      [&](ActorCriticPolicy& policy) {
        return std::make_unique<RecurrentPpoUpdate>(policy, config, num_envs);
      },
      config.recurrence());
}

std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action,
                                                 const RecurrentPpoConfig& config,
                                                 std::uint64_t seed) {
  return std::make_unique<Agent>(observation, action, config, seed, config.recurrence());
}

}  // namespace shoal::learn
