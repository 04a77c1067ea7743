#include "shoal/learn/algorithm/make_learner.h"

#include <fmt/format.h>

#include <string_view>
#include <type_traits>

#include "shoal/learn/a2c/a2c.h"
#include "shoal/learn/a3c/a3c.h"
#include "shoal/learn/appo/appo.h"
#include "shoal/learn/dqn/dqn.h"
#include "shoal/learn/dqn/q_policy.h"
#include "shoal/learn/impala/impala.h"
#include "shoal/learn/learner/agent.h"
#include "shoal/learn/learner/shards.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/ppo/ppo.h"
#include "shoal/learn/recurrent_ppo/recurrent_ppo.h"
#include "shoal/learn/sac/sac.h"
#include "shoal/learn/sac/sac_policy.h"
#include "shoal/os/error.h"

namespace shoal::learn {

namespace {

/// Whether learners of this configuration learn with other ranks.
template <class Config>
constexpr bool kLearnsInAGroup =
    std::is_same_v<Config, PpoConfig> || std::is_same_v<Config, A2cConfig>;

/// Whether their rollouts may come from elsewhere.
template <class Config>
constexpr bool kIsAsynchronous = std::is_base_of_v<AsynchronousOptions, Config>;

void refuse_group(std::string_view algorithm, const std::shared_ptr<group::Group>& group) {
  if (group && group->size() > 1)
    throw InvalidArgument(
        fmt::format("{} does not learn on {} ranks together; ppo and a2c do. With nproc=1 each "
                    "process trains by itself",
                    algorithm, group->size()));
}

}  // namespace

std::unique_ptr<Learner> make_learner(const env::Space& observation, const env::Space& action,
                                      int num_envs, const AlgorithmConfig& config,
                                      std::uint64_t seed,
                                      const std::shared_ptr<group::Group>& group,
                                      const std::shared_ptr<RolloutSupply>& supply) {
  if (supply) static_cast<void>(asynchronous_options(config));
  std::visit([](const auto& its) { require_fast(its.precision); }, config);
  return std::visit(
      [&]<class Config>(const Config& its) -> std::unique_ptr<Learner> {
        if constexpr (kLearnsInAGroup<Config>) {
          return make_learner(observation, action, num_envs, its, seed, group);
        } else {
          refuse_group(Config::kAlgorithm, group);
          if constexpr (kIsAsynchronous<Config>)
            return make_learner(observation, action, num_envs, its, seed, supply);
          else
            return make_learner(observation, action, num_envs, its, seed);
        }
      },
      config);
}

const AsynchronousOptions& asynchronous_options(const AlgorithmConfig& config) {
  const auto* options = std::visit(
      []<class Config>(const Config& its) -> const AsynchronousOptions* {
        if constexpr (kIsAsynchronous<Config>) return &its;
        return nullptr;
      },
      config);
  if (options == nullptr)
    throw InvalidArgument(fmt::format(
        "{} does not learn from collectors on other hosts; appo and impala do: leave out listen",
        algorithm_of(config)));
  if (options->deterministic)
    throw InvalidArgument(
        "what collectors on other hosts send depends on timing: leave out deterministic, or "
        "listen");
  return *options;
}

EnvRange envs_of_rank(int num_envs, const AlgorithmConfig& config,
                      const std::shared_ptr<group::Group>& group) {
  return std::visit(
      [&]<class Config>(const Config& its) -> EnvRange {
        if constexpr (kLearnsInAGroup<Config>) {
          const Shards shards(group, its.shards, num_envs);
          return {shards.first_env(), shards.envs_here()};
        } else {
          refuse_group(Config::kAlgorithm, group);
          return {0, num_envs};
        }
      },
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
