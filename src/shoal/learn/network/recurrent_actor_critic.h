// The network with LSTMs on own kernels: forward by single steps for acting, forward and backward
// through time over sequences for learning.
//
// What it remembers of a row: of the actor's LSTM, then of the critic's, if there are two.
#pragma once

#include <vector>

#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/actor_critic.h"
#include "shoal/learn/network/feature_input.h"
#include "shoal/learn/network/lstm.h"
#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/network/thread_team.h"

namespace shoal::learn {

class RecurrentActorCritic final : public ActorCritic {
 public:
  /// As FusedActorCritic's.
  RecurrentActorCritic(const Network& network, const Parameters& parameters,
                       const MlpKernels& kernels, int threads = compute_threads());

  std::size_t memory_size() const noexcept override;
  void forward(std::span<const shm::TensorView> obs, std::span<float> memory, std::span<float> head,
               std::span<float> value) override;
  void forward_train(std::span<const shm::TensorView> obs, const Sequences& sequences,
                     std::span<float> head, std::span<float> value) override;
  void backward(std::span<const float> d_head, std::span<const float> d_value,
                std::span<float> gradient) override;
  void parameters_changed() override;
  ThreadTeam* team() noexcept override { return input_.team(); }

 private:
  bool is_shared() const noexcept { return lstms_.size() == 1; }
  /// Where the critic's part of a row's memory begins.
  std::int64_t critic_memory() const noexcept;
  void back_to_images(std::span<float> gradient);

  const Network& network_;
  const Parameters& parameters_;
  FeatureInput input_;
  std::vector<Lstm> lstms_;
  MlpChain actor_, critic_;
  FloatRows of_actor_, of_critic_;  // what the MLPs took
  std::int64_t rows_ = 0;           // of the last forward_train()
  std::vector<AlignedFloats> d_;    // two parts of a sum over the heads, or over the LSTMs
};

}  // namespace shoal::learn
