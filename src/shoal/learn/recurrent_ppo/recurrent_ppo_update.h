// Recurrent PPO's update: PPO's, in minibatches of whole environments. Within a rollout an environment
// is one or more sequences, each from an episode's beginning, or the rollout's, to its end: so no
// sequence has a reset inside. Those from the rollout's beginning go on from what the policy remembered
// there, with the weights of then; the others from zeros. Rows that are no transitions are left out.
//
// Threads: one at a time. Bits depend on the rollout, the parameters, the seed and the iteration
// alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shoal/learn/ppo/ppo_update.h"
#include "shoal/learn/recurrent_ppo/recurrent_ppo_config.h"

namespace shoal::learn {

class RecurrentPpoUpdate final : public PpoUpdate {
 public:
  /// Borrows the policy.
  RecurrentPpoUpdate(ActorCriticPolicy& policy, const RecurrentPpoConfig& config);

 private:
  /// Steps [first, first + length) of an environment.
  struct Sequence {
    int env;
    int first;
    int length;
  };

  std::size_t split(collect::Rollout& rollout) override;
  void shuffle(std::int64_t iteration, int epoch) override;
  Parts minibatch(std::size_t which, std::size_t count) override;
  void find_sequences(collect::Rollout& rollout);
  void lay_out();

  int num_envs_ = 0;
  std::vector<std::vector<Sequence>> of_env_;
  std::vector<std::int32_t> envs_;  // those with sequences, in the epoch's order
  // The minibatch.
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> rows_, counts_;
  std::vector<float> memory_;
};

}  // namespace shoal::learn
