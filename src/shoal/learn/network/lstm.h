// A layer of LSTM cells on own kernels (mlp_kernels.h has the formula): forward over sequences beside
// each other, and backward through time. Parameters are torch.nn.LSTM's: rows of i, f, g and o.
//
// Sequences differ in length. Their rows come step by step, those of each step in the same order and
// the longest sequence first: counts[k] sequences have a step k, the first counts[k] of step k - 1.
//
// Threads: one at a time. Allocates only when there are more rows than ever before.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/mlp_chain.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"
#include "shoal/learn/network/philox.h"

namespace shoal::learn {

/// Declares `name`.weight_ih_l0 and the other three.
LstmLayer add_lstm(Parameters& parameters, const std::string& name, std::int64_t in,
                   const Recurrence& recurrence);

/// Orthogonal weights and biases of 0; or PyTorch's default, all uniform within 1 / sqrt(cells).
void initialize_lstm(const LstmLayer& layer, Parameters& parameters, bool orthogonal_init,
                     const Philox& random);

class Lstm {
 public:
  /// Borrows the parameters and the kernels.
  Lstm(const LstmLayer& layer, const Parameters& parameters, const MlpKernels& kernels);

  /// Floats that a row remembers: the outputs of all cells, then their states.
  std::int64_t memory_size() const noexcept { return 2 * layer_.size; }

  /// The outputs for these rows, [padded(cells)] floats each, and all that backward() needs. A first
  /// step follows on what sequence s remembers at memory + s * stride.
  FloatRows forward(FloatRows x, std::span<const std::int32_t> counts, const float* memory,
                    std::int64_t stride);

  /// One step of `rows` rows, whose memory it moves on.
  FloatRows step(FloatRows x, std::int64_t rows, float* memory, std::int64_t stride);

  /// To be written before backward(): the loss's derivative by forward()'s outputs, in rows of
  /// padded(cells) floats whose last ones are 0. backward() adds to it.
  float* d_output() noexcept { return d_output_.data(); }

  /// Writes the places of this layer's parameters in `gradient`. `x` is forward()'s, with padded(in)
  /// floats in each row, of which those beyond `in` do not matter.
  void backward(FloatRows x, std::span<float> gradient);

  /// After backward(): the derivative by its input, [rows][padded(in)].
  void backward_input(float* to);

  void parameters_changed();

 private:
  void reserve(std::int64_t rows, std::int64_t sequences);
  void back_through_time();
  void weight_gradient(std::size_t weight, std::int64_t in, FloatRows x, std::span<float> gradient);
  /// A weight's rows, [4 * cells][in], to `to`, [4 * width_][padded(in)].
  void copy_straight(std::size_t weight, std::int64_t in, float* to) const;

  const LstmLayer layer_;
  const Parameters& parameters_;
  const MlpKernels& kernels_;
  const std::int64_t width_;  // padded(cells)
  AlignedFloats input_;       // [in][4 * width_]: weight_ih transposed
  AlignedFloats hidden_;      // [cells][4 * width_]: weight_hh transposed
  AlignedFloats bias_;        // [4 * width_]: both biases
  AlignedFloats straight_;  // [4 * width_][padded(cells) or padded(in)]: a weight for the way back
  AlignedFloats scratch_;   // a weight's gradient, padded
  std::vector<std::int32_t> counts_;  // of the last forward()
  std::int64_t rows_ = 0;
  std::int64_t capacity_ = 0, sequence_capacity_ = 0;
  AlignedFloats gates_, d_gates_;                               // [rows][4][width_]
  AlignedFloats before_, cell_, squashed_, output_, d_output_;  // [rows][width_]
  AlignedFloats output_before_;                                 // likewise
  AlignedFloats d_cell_;                                        // [sequences][width_]
};

}  // namespace shoal::learn
