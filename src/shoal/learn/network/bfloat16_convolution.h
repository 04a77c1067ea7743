// A convolutional layer with ReLU in bfloat16: the products of convolution.h, whose factors are pairs of
// rounded numbers and whose sums are floats.
//
//   forward, input gradient   pairs of neighbours: a sum runs over the channels of a patch or an output,
//                             which lie beside each other
//   weight gradient           pairs of two images: a sum runs over the outputs of both, so that
//                             each is read as floats are
//
// Threads: forward and the gradients by any number at once, on different memory, while no pack…()
// runs.
#pragma once

#include <cstdint>
#include <span>

#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/convolution.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"

namespace shoal::learn {

class Bfloat16Convolution {
 public:
  /// As Convolution. The layer takes `scale` times the image: weights are scaled before they are rounded, so
  /// that bytes can be taken as they are. A patch's line, and a line of `in`, have even numbers of
  /// channels.
  Bfloat16Convolution(const Layer& layer, const ImageShape& in, float scale,
                      const MlpKernels& kernels);

  const Layer& layer() const noexcept { return layer_; }
  const ImageShape& in() const noexcept { return in_; }
  const ImageShape& out() const noexcept { return out_; }

  /// Takes parameters (torch's layouts, [out][in][kernel][kernel] and [out]) for forward.
  void pack_forward(std::span<const float> weight, std::span<const float> bias) noexcept;
  /// The same for input_gradient().
  void pack_backward(std::span<const float> weight) noexcept;

  /// max(convolution + bias, 0) of one image of pairs of neighbours.
  void forward(const Bfloat16Pair* in, float* out) const noexcept;

  /// Floats of a gradient by the parameters as add_gradient() makes it.
  std::int64_t gradient_size() const noexcept { return (patch() + 1) * out_.channels; }
  /// Adds the share of two images, which are pairs of both. `delta`: the loss's derivative by the sums,
  /// before ReLU.
  void add_gradient(const Bfloat16Pair* in, const Bfloat16Pair* delta,
                    float* gradient) const noexcept;
  /// Such a gradient in torch's layouts.
  void unpack_gradient(const float* gradient, std::span<float> weight,
                       std::span<float> bias) const noexcept;

  /// Overwrites `d_in` with the derivative by the input; `delta` is one image of pairs of neighbours.
  void input_gradient(const Bfloat16Pair* delta, float* d_in) const noexcept;

 private:
  /// Numbers that an output reads.
  std::int64_t patch() const noexcept { return layer_.kernel * run(); }
  /// Those that lie beside each other.
  std::int64_t run() const noexcept { return layer_.kernel * in_.channels; }

  Layer layer_;
  ImageShape in_, out_;
  float scale_;
  const MlpKernels& kernels_;
  AlignedPairs forward_;   // panels over the outputs' channels: [panel][patch / 2][kPanel]
  AlignedPairs backward_;  // for each place of the kernel panels over the inputs' channels:
                           // [kernel][kernel][panel][padded out / 2][kPanel]
  AlignedFloats bias_;     // [padded out]
};

}  // namespace shoal::learn
