// Running moments of a stream whose rows come from several shards, perhaps in several processes, so
// that what one shard goes by depends on what all agreed on and on its own rows alone.
//
// Between two agreements a shard has the agreed moments with its own rows since merged in. To
// agree, each shard's rows since, as (count, mean, variance), are merged into the agreed moments in
// the order of shards: whole totals would count the shared past again.
//
// Threads: one at a time. The same rows in the same order give the same bits, wherever the shards
// are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shoal/collect/running_moments.h"

namespace shoal::collect {

class ShardMoments {
 public:
  /// Of `size` elements a row, with no rows yet.
  ShardMoments(std::size_t size, int shards, const RunningMoments& agreed);

  int shards() const noexcept { return static_cast<int>(shards_.size()); }

  /// Takes in rows of one shard; what it goes by then.
  template <class T>
  const RunningMoments& update(int shard, std::span<const T> rows, const RunningMoments& agreed);
  /// What a shard goes by now.
  const RunningMoments& of(int shard) const noexcept {
    return shards_[static_cast<std::size_t>(shard)].now;
  }

  /// Doubles of one shard's news.
  std::size_t width() const noexcept { return 1 + 2 * size_; }
  /// Writes what each shard has seen since the last agreement: shards() * width() elements.
  void tell(std::span<double> news) const;
  /// Merges the news of all shards into `agreed`, from which the shards here go on.
  void agree(std::span<const double> news, RunningMoments& agreed);

 private:
  struct Shard {
    RunningMoments since;  // the last agreement
    RunningMoments now;
  };

  std::size_t size_;
  std::vector<Shard> shards_;
};

}  // namespace shoal::collect
