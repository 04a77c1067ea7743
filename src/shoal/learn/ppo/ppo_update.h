// PPO's update: some epochs over a rollout in shuffled minibatches. What a minibatch is made of, a
// kin of PPO may say in another way: here rows, each by itself.
//
// Threads: one at a time. Bits depend on the rollout, the parameters, the seed and the iteration
// alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shoal/learn/learner/rollout_update.h"
#include "shoal/learn/ppo/ppo_config.h"
#include "shoal/learn/ppo/ppo_loss.h"

namespace shoal::learn {

class PpoUpdate : public RolloutUpdate {
 public:
  /// Borrows the policy.
  PpoUpdate(ActorCriticPolicy& policy, const PpoConfig& config, Shards shards = Shards());

 protected:
  void estimate(collect::Rollout& rollout) override;

  /// How many minibatches an epoch over these rows has, at least one: as many as fit best with
  /// batch_size.
  virtual std::size_t split(collect::Rollout& rollout);
  /// Another order for minibatches.
  virtual void shuffle(std::int64_t iteration, int epoch);
  /// The `which`-th of `count`, in this order; valid until the next call of anything.
  virtual Parts minibatch(std::size_t which, std::size_t count);

  /// In place, from an ascending order on, so that an epoch's order depends on nothing before it.
  void shuffle(std::span<std::int32_t> order, std::int64_t iteration, int epoch,
               std::uint32_t shard = 0) const;

  const PpoConfig ppo_;

 private:
  void learn(collect::Rollout& rollout, const UpdateTime& time, UpdateStats& stats) override;
  /// The rollout's values by the network as it is.
  void value_anew(collect::Rollout& rollout);

  PpoLoss loss_;
};

}  // namespace shoal::learn
