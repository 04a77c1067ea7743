// An OffPolicyLearner's state as named arrays, and back.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shoal/learn/learner/state_arrays.h"
#include "shoal/learn/off_policy/off_policy_learner_impl.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

std::vector<NamedArray> arrays_of(collect::ReplayContents contents) {
  std::vector<NamedArray> arrays;
  arrays.push_back(named_array("heads", std::span<const std::int64_t>(contents.heads)));
  arrays.push_back(named_array("begun", std::span<const std::uint8_t>(contents.begun)));
  const auto bytes = static_cast<std::int64_t>(contents.rows.size());
  arrays.push_back({"rows", {shm::DType::kU8, {bytes}}, std::move(contents.rows)});
  arrays.push_back(named_array("weights", std::span<const std::uint64_t>(contents.weights)));
  arrays.push_back(named_array("greatest", std::span<const std::uint64_t>(&contents.greatest, 1)));
  return arrays;
}

/// The values of `name`, however many.
template <class T>
std::span<const T> all_of(const std::vector<NamedArray>& arrays, const char* name) {
  const auto found = std::ranges::find(arrays, name, &NamedArray::name);
  const std::size_t size = found == arrays.end() ? 0 : found->bytes.size() / sizeof(T);
  return find_array<T>(arrays, name, size);
}

/// Borrowed: a replay may take most of the memory.
collect::ReplayContentsView contents_of(const std::vector<NamedArray>& arrays) {
  collect::ReplayContentsView contents;
  contents.heads = all_of<std::int64_t>(arrays, "heads");
  contents.begun = all_of<std::uint8_t>(arrays, "begun");
  contents.rows = std::as_bytes(all_of<std::uint8_t>(arrays, "rows"));
  contents.weights = all_of<std::uint64_t>(arrays, "weights");
  contents.greatest = find_array<std::uint64_t>(arrays, "greatest", 1)[0];
  return contents;
}

}  // namespace

LearnerState OffPolicyLearner::policy_state() const {
  const Impl& me = *impl_;
  LearnerState state;
  me.update->agent().save(state);
  me.standing.save(me.config, state);
  state.counters["seed"] = me.update->agent().random().seed();
  state.counters["steps"] = me.steps;
  state.counters["iteration"] = me.iteration;
  state.counters["updates"] = me.updates;
  return state;
}

LearnerState OffPolicyLearner::state() const {
  LearnerState state = policy_state();
  impl_->update->save(state);
  state.replay = arrays_of(impl_->replay.contents());
  return state;
}

void OffPolicyLearner::load_state(const LearnerState& state) {
  // All is read, and thereby checked, before anything of this learner changes.
  Impl& me = *impl_;
  const auto put_back = me.update->read(state);
  EpisodeStanding standing = me.standing;
  standing.load(me.config, state);
  const collect::ReplayContentsView contents = contents_of(state.replay);
  const auto steps = counter(state, "steps").get<std::int64_t>();
  const auto iteration = counter(state, "iteration").get<std::int64_t>();
  const auto updates = counter(state, "updates").get<std::int64_t>();
  const auto seed = counter(state, "seed").get<std::uint64_t>();
  // Both may refuse what is not their own.
  LearnerState policy;
  me.update->agent().save(policy);
  me.update->agent().load(state);
  try {
    me.replay.restore(contents);
  } catch (...) {
    me.update->agent().load(policy);
    throw;
  }
  put_back();
  me.standing = std::move(standing);
  me.update->agent().reseed(seed);
  me.steps = steps;
  me.iteration = iteration;
  me.updates = updates;
}

void OffPolicyLearner::load_policy(const LearnerState& state) {
  impl_->update->agent().load(state);
}

}  // namespace shoal::learn
