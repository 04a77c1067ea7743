// A chain of linear layers on own kernels: forward, and backward to its parameters and to its input.
//
// All arrays of rows are padded to kPad floats. A row's results do not depend on the rows beside it;
// gradients are sums over rows in their order.
//
// Threads: one at a time. Allocates only when there are more rows than ever before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shoal/learn/config/learner_config.h"
#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"

namespace shoal::learn {

/// Rows of floats beside each other: row r at data + r * stride.
struct FloatRows {
  const float* data = nullptr;
  std::int64_t stride = 0;

  const float* row(std::int64_t r) const noexcept { return data + r * stride; }

  /// Copies the first `width` floats of so many rows to where they lie end to end.
  void copy_to(std::span<float> to, std::int64_t rows, std::int64_t width) const;
};

class MlpChain {
 public:
  /// Borrows the parameters and the kernels. `mlp` may be empty: then its output is its input.
  MlpChain(const Mlp& mlp, Activation activation, const Parameters& parameters,
           const MlpKernels& kernels = mlp_kernels().front());

  bool empty() const noexcept { return layers_.empty(); }

  /// What the last layer says of these rows, and what every layer said: kept for backward(). Reads
  /// padded(in) floats of each row in backward(), of which those beyond `in` do not matter.
  FloatRows forward(FloatRows x, std::int64_t rows);

  /// To be written before backward(): the derivative of the loss by the last layer's outputs (before
  /// an activation, see times_slope()), row r at r * delta_stride(). Columns beyond the outputs stay 0.
  float* delta() noexcept { return layers_.back().delta.data(); }
  std::int64_t delta_stride() const noexcept { return padded(layers_.back().layer.out); }
  /// Writes it from rows of the last layer's outputs that lie end to end.
  void take_delta(std::span<const float> derivative) noexcept;

  /// From delta() to the gradient of this chain's parameters, which it overwrites at their offsets in
  /// `gradient`; empty: only to the input. `x` is forward()'s.
  void backward(FloatRows x, std::int64_t rows, std::span<float> gradient);

  /// After backward(): the derivative by the chain's input, [rows][padded(in)] floats; where `input` is the
  /// output of an activated layer, by its sum before the activation.
  void backward_input(std::int64_t rows, float* to,
                      const FloatRows* activated_input = nullptr) const;

  /// The same of two chains that took the same input: the sum of what both pass back to it. `scratch`
  /// grows to hold one part.
  static void backward_shared_input(const MlpChain& first, const MlpChain& second,
                                    std::int64_t rows, float* to, AlignedFloats& scratch,
                                    const FloatRows* activated_input = nullptr);

  void parameters_changed();

 private:
  struct Dense {
    Layer layer;
    AlignedFloats transposed;  // [in][padded out], for forward
    AlignedFloats straight;    // [out][padded in], for backward
    AlignedFloats bias;        // [padded out]
    AlignedFloats output;      // [rows][padded out]
    AlignedFloats delta;       // [rows][padded out]
  };

  void reserve(std::int64_t rows);
  void weight_gradient(const Dense& dense, FloatRows x, std::int64_t rows,
                       std::span<float> gradient);
  void back_through(const Dense& dense, std::int64_t rows, float* to,
                    const FloatRows* activated) const;

  const Parameters& parameters_;
  const MlpKernels& kernels_;
  const Epilogue activation_;
  const Epilogue slope_;
  std::vector<Dense> layers_;
  std::int64_t capacity_ = 0;  // rows that the buffers hold
  AlignedFloats scratch_;      // one layer's gradient, padded
};

}  // namespace shoal::learn
