// Whether the ranks of a group share an update out, or each computes all of it.
//
// Shared out, a rank computes the gradient of its own rows, and there is a sum over all ranks for
// each minibatch. Where that takes longer than the rows of the others, all ranks are given all
// rollouts instead, once an iteration, and only collection is shared out. With U minibatches, of
// which all rows together take G, and N ranks:
//
//   shared out     U (G / N + sum)
//   not            U G + rollouts to all
//
// Both give the same bits: the shards' gradients are computed by themselves and added in the same
// order. So a choice that depends on times changes nothing else.
//
// Threads: one at a time. All ranks of a group call run() as often as the others.
#pragma once

#include <optional>
#include <string>

#include "shoal/collect/rollout.h"
#include "shoal/learn/config/rank_options.h"
#include "shoal/learn/learner/rollout_update.h"
#include "shoal/learn/learner/shards.h"
#include "shoal/learn/learner/whole_rollout.h"

namespace shoal::learn {

class UpdateSharing {
 public:
  /// Throws InvalidArgument for kNever where the sums of ranks have another order than those of one.
  UpdateSharing(const Shards& shards, SplitUpdate wanted);

  /// The update's run(), with this rank's rollout. With kAuto the first one is shared out and
  /// measured; what follows from that is logged.
  UpdateStats run(RolloutUpdate& update, collect::Rollout& rollout, const UpdateTime& time);

  /// Nothing where there is one rank, and before the first update.
  std::optional<bool> splits() const noexcept { return splits_; }

 private:
  /// Nothing where the update had nothing to learn from.
  std::optional<bool> measure(const RolloutUpdate& update, collect::Rollout& rollout);
  bool decide(bool splits, const std::string& why);

  Shards shards_;
  bool chooses_;
  std::optional<bool> splits_;
  WholeRollout whole_;
};

}  // namespace shoal::learn
