// Which part of a run's environments this process has, and how the parts add up.
//
// All environments of a run are cut into shards of equal size, in their order, and each rank of a
// group has as many of those. Whatever depends on the experience is computed by shard, and added in
// the one order of group/pairwise_sum.h; so where shards and ranks are powers of two, the same
// shards give the same bits on any number of ranks.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shoal/group/group.h"

namespace shoal::learn {

class Shards {
 public:
  /// One, of this process alone.
  explicit Shards(int num_envs = 0) : num_envs_(num_envs) {}

  /// `count` of `num_envs` environments, of which each rank of `group` (nullptr: this process
  /// alone) has its share; 0: one for each rank. Throws InvalidArgument for numbers that do not
  /// divide each other, and for shards of several a rank that are no powers of two.
  Shards(std::shared_ptr<group::Group> group, int count, int num_envs);

  /// Nothing is parted: sums are over all rows at once.
  bool whole() const noexcept { return count_ == 1; }
  int count() const noexcept { return count_; }  // of the run
  int here() const noexcept { return here_; }    // of this process
  int first() const noexcept { return first_; }  // of this process's among all

  int num_envs() const noexcept { return num_envs_; }  // of the run
  int envs_here() const noexcept { return num_envs_ / count_ * here_; }
  int first_env() const noexcept { return num_envs_ / count_ * first_; }

  /// The same shards, all of them here: for who has the rollouts of all ranks. It has their sums,
  /// bit for bit, where sums_alike().
  Shards all_here() const;
  bool sums_alike() const noexcept { return !group_ || group_->adds_in_line(); }

  /// nullptr: this process is alone.
  group::Group* group() const noexcept { return group_.get(); }

  /// The rows of each shard here, of rows t * envs_here() + i, in their order.
  void part(std::span<const std::int32_t> rows,
            std::vector<std::vector<std::int32_t>>& parts) const;

  /// What shards have, one after the other in `floats` and `doubles`, becomes the sum of all shards
  /// of all ranks, in the first of their places.
  void sum(std::span<float> floats, std::span<double> doubles) const;

  /// `values`, of which this process has filled in what is of its shards and left zeros elsewhere,
  /// becomes what all have filled in.
  void collect(std::span<double> values) const;

 private:
  template <class T>
  std::span<T> add_here(std::span<T> of_shards) const;

  std::shared_ptr<group::Group> group_;
  int count_ = 1;
  int here_ = 1;
  int first_ = 0;
  int num_envs_;
};

}  // namespace shoal::learn
