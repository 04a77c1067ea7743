// The network on own kernels: forward and analytic backward without an allocation or a dispatch.
//
// Gradients equal those of automatic differentiation to rounding (fused_actor_critic_test.cc holds
// them to 1e-5 of the gradient's norm).
#pragma once

#include <vector>

#include "shoal/learn/network/actor_critic.h"
#include "shoal/learn/network/feature_input.h"
#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/network/mlp_kernels.h"
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

 private:
  // A linear layer with its weights packed for both directions, and what it computed last.
  struct Dense {
    Layer layer;
    AlignedFloats transposed;  // [in][padded out], for forward
    AlignedFloats straight;    // [out][padded in], for backward
    AlignedFloats bias;        // [padded out]
    AlignedFloats output;      // [rows][padded out]
    AlignedFloats delta;  // [rows][padded out]: derivative of the loss by the layer's sum, before
                          // the activation
  };
  using Chain = std::vector<Dense>;
  using Rows = FloatRows;

  Chain make_chain(const Mlp& mlp) const;
  void reserve(std::int64_t rows);
  Rows run(Chain& chain, Rows x, std::int64_t rows) const;
  void run_all(Rows x, std::int64_t rows, std::span<float> head, std::span<float> value);
  void copy_out(const Chain& chain, std::int64_t rows, std::span<float> out) const;
  void take_delta(Chain& chain, std::int64_t rows, std::span<const float> derivative) const;
  void back(Chain& chain, Rows x, std::int64_t rows, std::span<float> gradient);
  /// What `dense` passes back to the layer below it, to `delta`.
  void back_through(const Dense& dense, const Dense& below, std::int64_t rows, float* delta);
  /// What it passes back to its input, which is no layer's output, to `delta` ([rows][padded in]).
  void back_to_input(const Dense& dense, std::int64_t rows, float* delta) const;
  void back_to_trunk(std::int64_t rows);
  void back_to_images(std::int64_t rows, std::span<float> gradient);
  void weight_gradient(const Dense& dense, Rows x, std::int64_t rows, std::span<float> gradient);
  Epilogue activation() const noexcept;
  Epilogue slope() const noexcept;

  const Network& network_;
  const Parameters& parameters_;
  const MlpKernels& kernels_;
  FeatureInput input_;
  Chain trunk_, actor_, critic_;
  std::int64_t capacity_ = 0;  // rows that the buffers hold
  std::int64_t rows_ = 0;      // of the last forward_train()
  AlignedFloats scratch_;      // one layer's weight gradient, and bias gradient, padded
  AlignedFloats from_critic_;  // [rows][padded trunk], or [rows][padded features] without a trunk
  AlignedFloats d_input_;      // [rows][padded features]
};

}  // namespace shoal::learn
