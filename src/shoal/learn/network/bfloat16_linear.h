// The linear layer of wide_linear.h in bfloat16: factors are rounded, sums are floats.
//
// Forward and the input's gradient sum over pairs of neighbours, the weight's over pairs of rows. Threads
// share columns, so bits do not depend on their number; and rows are paired in their order, so a
// gradient does not depend on anything else.
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

class Bfloat16Linear {
 public:
  /// `layer.in` and `layer.out` must be multiples of kPad. Borrows the team.
  Bfloat16Linear(const Layer& layer, const MlpKernels& kernels, ThreadTeam& team);

  const Layer& layer() const noexcept { return layer_; }

  /// Takes parameters (torch's layouts, [out][in] and [out]), also for backward().
  void pack(std::span<const float> weight, std::span<const float> bias);

  /// max(x weight^T + bias, 0), to rows of `stride` floats from `out` on. `x` has rows of in / 2 pairs
  /// of neighbours, no gaps.
  void forward(const Bfloat16Pair* x, std::int64_t rows, float* out, std::int64_t stride);

  /// From `delta`, the loss's derivative by the sums before ReLU ([rows][out], no gaps): that by the
  /// parameters, and by the input, to `d_x`, [rows][in].
  void backward(const Bfloat16Pair* x, std::int64_t rows, const float* delta,
                std::span<float> d_weight, std::span<float> d_bias, float* d_x);

 private:
  Layer layer_;
  const MlpKernels& kernels_;
  ThreadTeam& team_;
  AlignedPairs weight_;                // [out][in / 2]
  AlignedPairs transposed_;            // [panel][in / 2][kPanel]
  AlignedFloats bias_;                 // [out]
  AlignedPairs delta_;                 // [rows][out / 2]
  AlignedPairs paired_delta_;          // [rows / 2, up][out], and the same turned
  std::vector<AlignedPairs> columns_;  // of each thread: a panel of x, then of the weight
};

}  // namespace shoal::learn
