// A RolloutLearner's state as named arrays, and back.
#include <algorithm>
#include <utility>

#include "shoal/learn/learner/optimizer_state.h"
#include "shoal/learn/learner/rollout_learner_impl.h"
#include "shoal/learn/learner/state_arrays.h"

namespace shoal::learn {
namespace {

constexpr const char* kMemory = "memory";

}  // namespace

LearnerState RolloutLearner::state() const {
  Impl& me = *impl_;
  LearnerState state;
  me.agent.save(state);
  OptimizerState::save(me.update->optimizer(), me.agent.policy().parameters(), state);
  me.source.save(state);
  save_returns(me.update->returns(), state);
  const EpisodeMemory& memory = me.agent.policy().memory();
  if (!memory.all().empty()) state.episodes.push_back(named_array(kMemory, memory.all()));
  state.counters["seed"] = me.agent.policy().random().seed();
  state.counters["steps"] = me.steps;
  state.counters["iteration"] = me.iteration;
  return state;
}

void RolloutLearner::load_state(const LearnerState& state) {
  // All is read, and thereby checked, before anything of this learner changes.
  Impl& me = *impl_;
  if (state.counters.contains("waiting_rollouts"))
    throw InvalidArgument(
        "load a learner's state: rollouts wait in it, collected beside an update: go on with "
        "overlap = true");
  auto& optimizer = me.update->optimizer();
  const auto optimizer_state =
      OptimizerState::read(state, optimizer, me.agent.policy().parameters());
  auto standing = me.source.read(state);
  auto returns = read_returns(state, me.update->returns());
  const std::span<float> memory = me.agent.policy().memory().all();
  std::span<const float> remembered;
  if (!memory.empty()) remembered = find_array<float>(state.episodes, kMemory, memory.size());
  const auto steps = counter(state, "steps").get<std::int64_t>();
  const auto iteration = counter(state, "iteration").get<std::int64_t>();
  const auto seed = counter(state, "seed").get<std::uint64_t>();

  load_policy(state);
  optimizer_state.put_into(optimizer);
  me.source.put_back(std::move(standing));
  me.update->returns() = std::move(returns);
  std::ranges::copy(remembered, memory.begin());
  me.agent.reseed(seed);
  me.split();  // what they have agreed on is another
  me.steps = steps;
  me.iteration = iteration;
}

void RolloutLearner::load_policy(const LearnerState& state) { impl_->agent.load(state); }

}  // namespace shoal::learn
