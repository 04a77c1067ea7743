#include "shoal/learn/run/network_actor.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "shoal/env/space_json.h"
#include "shoal/learn/algorithm/make_learner.h"
#include "shoal/learn/algorithm/train_config.h"
#include "shoal/learn/checkpoint/checkpoint.h"
#include "shoal/learn/run/trained_policy.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

constexpr std::string_view kNormalizer = "normalizer.";
constexpr std::string_view kObsNormalizer = "obs.";

}  // namespace

NetworkActor::NetworkActor(const env::Space& observation, const env::Space& action,
                           const AlgorithmConfig& config, std::uint64_t seed)
    : agent_(make_acting_policy(observation, action, config, seed)),
      memory_(agent_->memory_size()) {}

NetworkActor NetworkActor::load(const std::filesystem::path& directory,
                                const env::Space& observation, const env::Space& action,
                                std::uint64_t seed) {
  const auto checkpoint = Checkpoint::read(directory, Checkpoint::Part::kPolicy);
  env::Space trained_observation, trained_action;
  TrainConfig config;
  try {
    trained_observation = env::space_from_json(checkpoint.state.at("observation_space"));
    trained_action = env::space_from_json(checkpoint.state.at("action_space"));
    apply_saved(checkpoint.state.at("config"), config);
  } catch (const nlohmann::json::exception& error) {
    throw CorruptFile(
        fmt::format("{}: not a usable checkpoint: {}", directory.string(), error.what()));
  }
  if (trained_observation != observation || trained_action != action) {
    throw InvalidArgument(fmt::format(
        "the policy of {} was trained with observations {} and actions {}; these environments have "
        "{} and {}",
        directory.string(), trained_observation.repr(), trained_action.repr(), observation.repr(),
        action.repr()));
  }
  NetworkActor actor(observation, action, config.algorithm, seed);
  actor.agent_->load(learner_state_of(checkpoint));
  return actor;
}

void NetworkActor::act(const collect::Decision& decision) {
  agent_->decide(decision.obs, memory_.of(decision.is_first), decision.step, decision.action,
                 decision.log_prob, decision.value);
}

void NetworkActor::load_memory(std::span<const float> values) {
  const std::size_t row = memory_size();
  if (row == 0 ? !values.empty() : values.size() % row != 0)
    throw InvalidArgument(
        fmt::format("load the memory of a network: it has {} numbers a row, and these are {}", row,
                    values.size()));
  memory_.load(values);
}

std::vector<NamedArray> NetworkActor::weights() const {
  LearnerState state;
  agent_->save(state);
  std::vector<NamedArray> weights = std::move(state.policy);
  for (NamedArray& array : state.normalizer) {
    if (!array.name.starts_with(kObsNormalizer)) continue;
    array.name.insert(0, kNormalizer);
    weights.push_back(std::move(array));
  }
  return weights;
}

void NetworkActor::load_weights(std::vector<NamedArray> weights) {
  LearnerState state;
  for (NamedArray& array : weights) {
    const bool is_normalizer = array.name.starts_with(kNormalizer);
    if (is_normalizer) array.name.erase(0, kNormalizer.size());
    (is_normalizer ? state.normalizer : state.policy).push_back(std::move(array));
  }
  agent_->load(state);
}

}  // namespace shoal::learn
