#include "shoal/learn/algorithm/make_learner.h"

#include "shoal/learn/a2c/a2c.h"
#include "shoal/learn/a3c/a3c.h"
#include "shoal/learn/appo/appo.h"
#include "shoal/learn/dqn/dqn.h"
#include "shoal/learn/dqn/q_policy.h"
#include "shoal/learn/impala/impala.h"
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/ppo/ppo.h"
#include "shoal/learn/recurrent_ppo/recurrent_ppo.h"
#include "shoal/learn/sac/sac.h"
#include "shoal/learn/sac/sac_policy.h"

namespace shoal::learn {

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const AlgorithmConfig& config,
                                      std::uint64_t seed) {
  return std::visit(
      [&](const auto& its) { return make_learner(observation, action, num_envs, its, seed); },
      config);
}

std::unique_ptr<ActingPolicy> make_acting_policy(const env::Space& observation,
                                                 const env::Space& action,
                                                 const AlgorithmConfig& config,
                                                 std::uint64_t seed) {
  return std::visit(
      [&](const auto& its) { return make_acting_policy(observation, action, its, seed); }, config);
}

}  // namespace shoal::learn
