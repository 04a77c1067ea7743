// Recurrent PPO's update: PPO's, in minibatches of whole environments, or of pieces of them: where there
// are to be more minibatches than environments (a batch_size below num_steps), the steps of each are cut
// into pieces of equal length, about batch_size. sb3-contrib cuts at every batch_size rows.
//
// A piece is one or more sequences, each from an episode's beginning, or the piece's, to its end: so no
// sequence has a reset inside. Those from a piece's beginning go on from what the policy remembered
// there while it acted, with the weights of then; the others from zeros. Gradients do not flow from one
// sequence into another. Rows that are no transitions are left out.
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
  /// Borrows the policy, which keeps what the pieces of its next rollouts begin with. `config` is valid.
  RecurrentPpoUpdate(ActorCriticPolicy& policy, const RecurrentPpoConfig& config, int num_envs);

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

  const int num_envs_;
  std::vector<int> firsts_;                      // steps that pieces begin with, ascending
  std::vector<std::vector<Sequence>> of_piece_;  // those of an environment one after the other
  std::vector<std::int32_t> pieces_;             // those with sequences, in the epoch's order
  // The minibatch.
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> rows_, counts_;
  std::vector<float> memory_;
};

}  // namespace shoal::learn
