#include "shoal/learn/run/trained_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "shoal/env/space_json.h"
#include "shoal/learn/algorithm/make_learner.h"

namespace shoal::learn {
namespace {

constexpr std::string_view kObsNormalizer = "obs.";
constexpr const char* kNormalizer = "normalizer.";
constexpr const char* kEpisodes = "episodes.";
constexpr const char* kReplay = "replay.";

/// How many numbers a network sees of it; `most` where there are more.
std::uint64_t width_of(const env::Leaf& leaf, std::uint64_t most) {
  std::uint64_t width = 0;
  const auto add = [&](std::int64_t n) {
    width = std::min(most, width + std::min(most, static_cast<std::uint64_t>(n)));
  };
  if (const auto* discrete = leaf.space.get_if<env::Discrete>()) {
    add(discrete->n);
  } else if (const auto* multi = leaf.space.get_if<env::MultiDiscrete>()) {
    for (const std::int64_t n : multi->nvec) add(n);
  } else {
    add(leaf.spec.numel());
  }
  return width + 1;
}

void borrow(const std::string& prefix, const NamedArray& array, std::vector<SafeTensor>& out) {
  out.push_back({prefix + array.name, array.spec, array.bytes});
}

void sort_back(const SafeTensors& file, std::vector<NamedArray>& plain, LearnerState& state) {
  for (const auto& [name, view] : file.tensors()) {
    std::vector<NamedArray>* target = &plain;
    std::string_view rest = name;
    if (rest.starts_with(kNormalizer)) {
      target = &state.normalizer;
      rest.remove_prefix(std::string_view(kNormalizer).size());
    } else if (rest.starts_with(kEpisodes)) {
      target = &state.episodes;
      rest.remove_prefix(std::string_view(kEpisodes).size());
    } else if (rest.starts_with(kReplay)) {
      target = &state.replay;
      rest.remove_prefix(std::string_view(kReplay).size());
    }
    target->push_back({std::string(rest), view.spec, {view.bytes.begin(), view.bytes.end()}});
  }
}

}  // namespace

CheckpointArrays arrays_of(const LearnerState& state, const std::vector<NamedArray>& envs) {
  CheckpointArrays arrays;
  for (const auto& array : state.policy) borrow("", array, arrays.policy);
  for (const auto& array : state.optimizer) borrow("", array, arrays.optimizer);
  for (const auto& array : state.normalizer)
    borrow(kNormalizer, array,
           array.name.starts_with(kObsNormalizer) ? arrays.policy : arrays.optimizer);
  for (const auto& array : state.episodes) borrow(kEpisodes, array, arrays.optimizer);
  for (const auto& array : state.replay) borrow(kReplay, array, arrays.optimizer);
  for (const auto& array : envs) borrow("", array, arrays.envs);
  return arrays;
}

LearnerState learner_state_of(const Checkpoint& checkpoint) {
  LearnerState state;
  sort_back(checkpoint.policy, state.policy, state);
  sort_back(checkpoint.optimizer, state.optimizer, state);
  state.counters = checkpoint.state.value("learner", nlohmann::json::object());
  return state;
}

void TrainedPolicy::require_room(const TrainedPolicy& policy, const SafeTensors& arrays) {
  // A network is built before its arrays are looked at. The first layer has a row for each number
  // that is seen, but for pictures, of which it has some for each patch.
  constexpr std::uint64_t kForPictures = 64, kSmall = 1 << 20;
  const std::uint64_t most = kSmall + kForPictures * arrays.bytes().size();
  std::uint64_t seen = 0;
  for (const env::Space* space : {&policy.observation_space_, &policy.action_space_})
    for (const env::Leaf& leaf : env::leaves(*space)) seen += width_of(leaf, most);
  const auto weights_of = [seen](const auto& its) {
    std::uint64_t weights = seen;
    const auto add = [&weights](const std::vector<int>& widths) {
      std::uint64_t in = 1;
      for (const int width : widths) {
        const auto out = static_cast<std::uint64_t>(width);
        weights += std::exchange(in, out) * out;
      }
    };
    add(its.policy_hidden);
    constexpr bool kHasItsValue = !std::is_base_of_v<OffPolicyConfig, std::decay_t<decltype(its)>>;
    if (kHasItsValue && !(its.shared_hidden && !its.policy_hidden.empty())) add(its.value_hidden);
    if constexpr (requires { its.lstm_size; }) {
      const auto cells = static_cast<std::uint64_t>(its.lstm_size);
      weights += cells * cells;
    }
    return weights;
  };
  const std::uint64_t weights = std::visit(weights_of, policy.config_.algorithm);
  if (weights > most)
    throw InvalidArgument(
        fmt::format("its spaces and layers are of a network that its {} bytes of arrays cannot be",
                    arrays.bytes().size()));
}

TrainedPolicy TrainedPolicy::load(const std::filesystem::path& directory) {
  const auto checkpoint = Checkpoint::read(directory, Checkpoint::Part::kPolicy);
  try {
    const auto& state = checkpoint.state;
    TrainedPolicy policy;
    policy.observation_space_ = env::space_from_json(state.at("observation_space"));
    policy.action_space_ = env::space_from_json(state.at("action_space"));
    policy.steps_ = state.at("step").get<std::int64_t>();
    apply_saved(state.at("config"), policy.config_);
    validate(policy.config_);
    require_room(policy, checkpoint.policy);
    policy.agent_ = make_acting_policy(policy.observation_space_, policy.action_space_,
                                       policy.config_.algorithm, policy.config_.seed);
    policy.agent_->load(learner_state_of(checkpoint));
    return policy;
  } catch (const nlohmann::json::exception& error) {
    throw CorruptFile(
        fmt::format("{}: not a usable checkpoint: {}", directory.string(), error.what()));
  } catch (const InvalidArgument& error) {
    throw CorruptFile(
        fmt::format("{}: not a usable checkpoint: {}", directory.string(), error.what()));
  }
}

}  // namespace shoal::learn
