#include "shoal/collect/shard_moments.h"

#include <algorithm>

namespace shoal::collect {

ShardMoments::ShardMoments(std::size_t size, int shards, const RunningMoments& agreed)
    : size_(size),
      shards_(static_cast<std::size_t>(shards), {RunningMoments::of_nothing(size), agreed}) {}

template <class T>
const RunningMoments& ShardMoments::update(int shard, std::span<const T> rows,
                                           const RunningMoments& agreed) {
  Shard& its = shards_[static_cast<std::size_t>(shard)];
  if (rows.empty()) return its.now;
  its.since.update(rows);
  its.now = agreed;
  its.now.merge(its.since.mean(), its.since.var(), its.since.count());
  return its.now;
}

template const RunningMoments& ShardMoments::update(int, std::span<const float>,
                                                    const RunningMoments&);
template const RunningMoments& ShardMoments::update(int, std::span<const double>,
                                                    const RunningMoments&);

void ShardMoments::tell(std::span<double> news) const {
  auto out = news.begin();
  for (const Shard& shard : shards_) {
    *out++ = shard.since.count();
    out = std::ranges::copy(shard.since.mean(), out).out;
    out = std::ranges::copy(shard.since.var(), out).out;
  }
}

void ShardMoments::agree(std::span<const double> news, RunningMoments& agreed) {
  for (; !news.empty(); news = news.subspan(width()))
    if (news[0] > 0) agreed.merge(news.subspan(1, size_), news.subspan(1 + size_, size_), news[0]);
  std::ranges::fill(shards_, Shard{RunningMoments::of_nothing(size_), agreed});
}

}  // namespace shoal::collect
