// A linear layer with ReLU that is too large for one thread and for the caches: what follows a tower
// of convolutions. Threads share its columns, so an element is computed by one of them from its first
// term to its last: bits do not depend on their number.
//
// Threads: one at a time, which brings the team.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/thread_team.h"

namespace shoal::learn {

class WideLinear {
 public:
  /// A matrix of floats, a row every `stride`.
  struct Rows {
    const float* data = nullptr;
    std::int64_t count = 0;
    std::int64_t stride = 0;
  };

  /// `layer.in` and `layer.out` must be multiples of kPad. Borrows the team.
  WideLinear(const Layer& layer, const MlpKernels& kernels, ThreadTeam& team);

  const Layer& layer() const noexcept { return layer_; }

  /// Takes parameters (torch's layouts, [out][in] and [out]) for forward().
  void pack(std::span<const float> weight, std::span<const float> bias);

  /// max(x weight^T + bias, 0), to rows of `stride` floats from `out` on.
  void forward(const Rows& x, float* out, std::int64_t stride);

  /// From `delta`, the loss's derivative by the sums before ReLU ([rows][out], no gaps): that by the
  /// parameters, and by the input, to `d_x`, [rows][in]. `weight` is what pack() took.
  void backward(const Rows& x, const float* delta, std::span<const float> weight,
                std::span<float> d_weight, std::span<float> d_bias, float* d_x);

 private:
  /// Some columns of the layer, by outputs and by inputs.
  struct Block {
    std::int64_t output, outputs;  // the first, and how many
    std::int64_t input, inputs;
  };

  void backward_few(const Rows& x, const float* delta, std::span<const float> weight,
                    std::span<float> d_weight, float* d_x);
  /// `x` begins with the block's inputs.
  void weight_gradient(const Block& block, const Rows& x, const float* delta,
                       std::span<float> d_weight) const noexcept;
  /// Of the block's inputs, from all outputs; so does `weight`, in rows of `weight_stride`.
  void input_gradient(const Block& block, std::int64_t rows, const float* delta,
                      const float* weight, std::int64_t weight_stride, float* d_x) const noexcept;

  Layer layer_;
  const MlpKernels& kernels_;
  ThreadTeam& team_;
  AlignedFloats transposed_;            // [panel][in][kPanel]
  AlignedFloats bias_;                  // [out]
  std::vector<AlignedFloats> columns_;  // of each thread: a panel of x, then of the weight
};

}  // namespace shoal::learn
