#include "shoal/learn/run/ranks.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "shoal/env/json_text.h"
#include "shoal/learn/run/replayable_vector_env.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

double as_number(bool flag) { return flag ? 1 : 0; }

SafeTensors share_arrays(group::Group& group, const SafeTensors& of_first) {
  return SafeTensors::parse(group.broadcast_any(of_first.bytes()), "rank 0's checkpoint");
}

/// Rows [first, first + count) of an array of one row an environment.
void keep_rows(const EnvRange& range, NamedArray& array) {
  const auto envs = array.spec.shape.empty() ? 0 : array.spec.shape[0];
  if (range.first + range.count > envs)
    throw InvalidArgument(
        fmt::format("{} has {} environments, not {}", array.name, envs, range.first + range.count));
  const std::size_t row = array.bytes.size() / static_cast<std::size_t>(envs);
  const auto kept = std::span(array.bytes)
                        .subspan(static_cast<std::size_t>(range.first) * row,
                                 static_cast<std::size_t>(range.count) * row);
  array.bytes = {kept.begin(), kept.end()};
  array.spec.shape[0] = range.count;
}

}  // namespace

Orders agree(group::Group& group, const Orders& mine) {
  const bool first = group.rank() == 0;
  std::array<double, 4> votes{as_number(mine.stop), as_number(first && mine.over),
                              as_number(first && mine.target), as_number(first && mine.save)};
  group.sum(votes);
  return {votes[0] > 0, votes[1] > 0, votes[2] > 0, votes[3] > 0};
}

bool all_of(group::Group& group, bool mine) {
  double against = as_number(!mine);
  group.sum(std::span(&against, 1));
  return against == 0;
}

Checkpoint share(group::Group& group, std::optional<Checkpoint> of_first) {
  Checkpoint mine;
  if (of_first) mine = std::move(*of_first);
  const std::string text = mine.state.dump();
  const auto state = group.broadcast_any(std::as_bytes(std::span(text)));
  const auto* begin = reinterpret_cast<const char*>(state.data());
  mine.state = env::parse_json({begin, state.size()});
  if (!mine.state.is_object()) throw Error("the checkpoint that rank 0 sent has no state");
  for (SafeTensors* arrays : {&mine.policy, &mine.optimizer, &mine.envs})
    *arrays = share_arrays(group, *arrays);
  return mine;
}

void take_part(const EnvRange& range, LearnerState& state, SafeTensors& envs) {
  for (NamedArray& array : state.episodes) keep_rows(range, array);
  if (!envs.tensors().empty()) envs = ReplayableVectorEnv::part(envs, range.first, range.count);
}

bool bring_together(group::Group& group, LearnerState& state, std::vector<NamedArray>& envs) {
  const auto episodes_of = group.gather(serialize(state.episodes));
  const auto envs_of = group.gather(serialize(envs));
  if (group.rank() != 0) return false;
  std::vector<SafeTensors> records;
  for (const auto& bytes : envs_of) records.push_back(SafeTensors::parse(bytes, "a rank's record"));
  envs = ReplayableVectorEnv::join(records);
  for (std::size_t rank = 1; rank < episodes_of.size(); ++rank) {
    const SafeTensors its = SafeTensors::parse(episodes_of[rank], "a rank's episodes");
    for (NamedArray& array : state.episodes) {
      const SafeTensorView& more = its.at(array.name);
      array.bytes.insert(array.bytes.end(), more.bytes.begin(), more.bytes.end());
      array.spec.shape[0] += more.spec.shape[0];
    }
  }
  return true;
}

}  // namespace shoal::learn
