// The network on own kernels: forward and analytic backward without an allocation or a dispatch.
//
// Gradients equal those of automatic differentiation to rounding (fused_actor_critic_test.cc holds
// them to 1e-5 of the gradient's norm).
#pragma once

#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/actor_critic.h"
#include "shoal/learn/network/feature_input.h"
#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/network/thread_team.h"

namespace shoal::learn {

class FusedActorCritic final : public ActorCritic {
 public:
  /// Borrows both. With images it computes with `threads` threads, the caller's among them, and gives
  /// the same bits for any number.
  FusedActorCritic(const Network& network, const Parameters& parameters, const MlpKernels& kernels,
                   int threads = compute_threads());

  void forward(std::span<const shm::TensorView> obs, std::span<float> memory, std::span<float> head,
               std::span<float> value) override;
  void forward_train(std::span<const shm::TensorView> obs, const Sequences& sequences,
                     std::span<float> head, std::span<float> value) override;
  void backward(std::span<const float> d_head, std::span<const float> d_value,
                std::span<float> gradient) override;
  void parameters_changed() override;
  ThreadTeam* team() noexcept override { return input_.team(); }

 private:
  /// Returns what the heads took.
  FloatRows run(FloatRows x, std::int64_t rows, std::span<float> head, std::span<float> value);
  void back_to_images(std::span<float> gradient);

  const Network& network_;
  const Parameters& parameters_;
  FeatureInput input_;
  MlpChain trunk_, actor_, critic_;
  FloatRows features_;         // what the heads took
  std::int64_t rows_ = 0;      // of the last forward_train()
  AlignedFloats from_critic_;  // [rows][padded trunk, or padded features without one]
  AlignedFloats d_input_;      // [rows][padded features]
};

}  // namespace shoal::learn
