#include "shoal/learn/learner/whole_rollout.h"

#include <cstring>

#include "shoal/shm/tensor.h"

namespace shoal::learn {
namespace {

/// One array of a rollout: rows of all environments, which come `times` times.
struct Column {
  std::byte* data;
  std::size_t row;  // bytes of one environment at one time
  std::size_t times;
};

std::vector<Column> columns_of(collect::Rollout& rollout) {
  std::vector<Column> columns;
  const auto steps = static_cast<std::size_t>(rollout.steps());
  for (const shm::TensorView& leaf : rollout.obs(0))
    columns.push_back({leaf.data, leaf.row_bytes(), steps + 1});
  columns.push_back({rollout.action().data, rollout.action().row_bytes(), steps});
  for (const auto floats :
       {rollout.reward(), rollout.value(), rollout.next_value(), rollout.logp()})
    columns.push_back({reinterpret_cast<std::byte*>(floats.data()), sizeof(float), steps});
  for (const auto flags : {rollout.terminated(), rollout.truncated(), rollout.valid()})
    columns.push_back({reinterpret_cast<std::byte*>(flags.data()), 1, steps});
  return columns;
}

}  // namespace

collect::Rollout& WholeRollout::of(const Shards& shards, collect::Rollout& here) {
  const auto envs = static_cast<std::size_t>(here.envs());
  const auto total = static_cast<std::size_t>(shards.num_envs());
  if (!all_) {
    std::vector<shm::TensorSpec> obs;
    for (const shm::TensorView& leaf : here.obs()) obs.push_back(leaf.row);
    all_.emplace(here.steps(), shards.num_envs(), obs, here.action().row);
  }
  mine_.clear();
  for (const Column& column : columns_of(here))
    mine_.insert(mine_.end(), column.data, column.data + column.row * column.times * envs);
  const std::vector<std::byte> of_all = shards.group()->gather_for_all(mine_);
  const std::byte* from = of_all.data();
  for (std::size_t first = 0; first < total; first += envs)
    for (const Column& column : columns_of(*all_))
      for (std::size_t time = 0; time < column.times; ++time) {
        std::memcpy(column.data + (time * total + first) * column.row, from, envs * column.row);
        from += envs * column.row;
      }
  return *all_;
}

}  // namespace shoal::learn
