// The network on own kernels: MLPs without images, forward and analytic backward without an
// allocation or a dispatch.
//
// Gradients equal LibTorch's to rounding (fused_actor_critic_test.cc holds them to 1e-5 of the
// gradient's norm).
#pragma once

#include <memory>
#include <vector>

#include "shoal/learn/network/actor_critic.h"
#include "shoal/learn/network/mlp_kernels.h"

namespace shoal::learn {

class FusedActorCritic final : public ActorCritic {
 public:
  /// `network` must have no images. Borrows both.
  FusedActorCritic(const Network& network, const Parameters& parameters, const MlpKernels& kernels);

  void forward(std::span<const shm::TensorView> obs, std::span<float> head,
               std::span<float> value) override;
  void forward_train(std::span<const shm::TensorView> obs, std::span<const std::int32_t> rows,
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
  struct Rows {
    const float* data;
    std::int64_t stride;
  };

  Chain make_chain(const Mlp& mlp) const;
  void reserve(std::int64_t rows);
  Rows run(Chain& chain, Rows x, std::int64_t rows) const;
  void run_all(Rows x, std::int64_t rows, std::span<float> head, std::span<float> value);
  void copy_out(const Chain& chain, std::int64_t rows, std::span<float> out) const;
  void take_delta(Chain& chain, std::int64_t rows, std::span<const float> derivative) const;
  void back(Chain& chain, Rows x, std::int64_t rows, std::span<float> gradient);
  void back_to_trunk(std::int64_t rows);
  /// What `dense` passes back to the layer below it, to `delta`.
  void back_through(const Dense& dense, const Dense& below, std::int64_t rows, float* delta);
  void weight_gradient(const Dense& dense, Rows x, std::int64_t rows, std::span<float> gradient);
  Epilogue activation() const noexcept;
  Epilogue slope() const noexcept;

  const Network& network_;
  const Parameters& parameters_;
  const MlpKernels& kernels_;
  Chain trunk_, actor_, critic_;
  std::int64_t capacity_ = 0;  // rows that the buffers hold
  std::int64_t rows_ = 0;      // of the last forward_train()
  AlignedFloats input_;        // [rows][padded dense]
  AlignedFloats scratch_;      // one layer's weight gradient, and bias gradient, padded
  AlignedFloats from_critic_;  // [rows][padded trunk]
};

}  // namespace shoal::learn
