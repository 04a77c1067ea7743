#include "shoal/learn/learner/shards.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "shoal/group/pairwise_sum.h"
#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

bool power_of_two(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

}  // namespace

Shards::Shards(std::shared_ptr<group::Group> group, int count, int num_envs)
    : group_(group && group->size() > 1 ? std::move(group) : nullptr), num_envs_(num_envs) {
  const int ranks = group_ ? group_->size() : 1;
  count_ = count == 0 ? ranks : count;
  if (count_ % ranks != 0)
    throw InvalidArgument(fmt::format(
        "shards is {}, which does not go into {} ranks: choose a multiple of the number of ranks",
        count_, ranks));
  if (num_envs % count_ != 0)
    throw InvalidArgument(fmt::format(
        "num_envs is {}, which does not go into {}: choose a multiple of {}", num_envs,
        count == 0 ? fmt::format("{} ranks", ranks) : fmt::format("{} shards", count_), count_));
  here_ = count_ / ranks;
  if (group_ && here_ > 1 &&
      !(power_of_two(count_) && power_of_two(ranks) && group_->adds_in_line()))
    throw InvalidArgument(fmt::format(
        "shards is {} on {} ranks: for the same bits as on one both have to be powers of two, and "
        "every host has to have the same power of two of ranks; leave shards out for other numbers",
        count_, ranks));
  first_ = group_ ? group_->rank() * here_ : 0;
}

Shards Shards::all_here() const {
  Shards all(num_envs_);
  all.count_ = all.here_ = count_;
  return all;
}

void Shards::part(std::span<const std::int32_t> rows,
                  std::vector<std::vector<std::int32_t>>& parts) const {
  parts.resize(static_cast<std::size_t>(here_));
  for (auto& part : parts) part.clear();
  const int envs = envs_here();
  const int each = envs / here_;
  for (const std::int32_t row : rows)
    parts[static_cast<std::size_t>(row % envs / each)].push_back(row);
}

template <class T>
std::span<T> Shards::add_here(std::span<T> of_shards) const {
  const std::size_t size = of_shards.size() / static_cast<std::size_t>(here_);
  const auto sum = of_shards.first(size);
  if (here_ == 1) return sum;
  std::vector<const T*> parts;
  for (int shard = 0; shard < here_; ++shard)
    parts.push_back(of_shards.data() + static_cast<std::size_t>(shard) * size);
  group::add_parts<T>(parts, 0, size, sum.data());
  return sum;
}

void Shards::sum(std::span<float> floats, std::span<double> doubles) const {
  const auto float_sum = add_here(floats);
  const auto double_sum = add_here(doubles);
  if (group_) group_->sum(float_sum, double_sum);
}

void Shards::collect(std::span<double> values) const {
  if (group_) group_->sum(values);  // with zeros: exact
}

}  // namespace shoal::learn
