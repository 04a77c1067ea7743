// A convolutional layer with ReLU on own kernels, one image at a time.
//
// Images are channels-last: element (y, x, c) at (y * width + x) * channels + c. The patch that an
// output reads is then `kernel` runs of kernel * channels floats, so that every direction is a
// product that reads the image where it lies; no patch is copied:
//
//   forward            rows: the outputs of a line      sum over the patch
//   weight gradient    rows: the elements of a patch    sum over the outputs
//   input gradient     rows: the inputs of a line,      sum over the outputs that read them, and their
//                      `stride` apart                   channels
//
// The channels of outputs are padded to kPad with channels that are always zero. For the input gradient
// the lines of outputs are copied to where zeros are beside them, so that inputs at the border are as others.
//
// Threads: forward and the gradients by any number at once, on different memory, while no pack…()
// runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "shoal/learn/kernels/mlp_kernels.h"
#include "shoal/learn/network/network.h"
#include "shoal/learn/network/parameters.h"

namespace shoal::learn {

/// Of an image in memory.
struct ImageShape {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t pixels() const noexcept { return height * width; }
  std::int64_t size() const noexcept { return channels * pixels(); }
};

/// Calls visit(o, c, y, x) for each weight of the layer, in the order of torch's.
template <class Visit>
void for_each_weight(const Layer& layer, Visit&& visit) {
  for (std::int64_t o = 0; o < layer.out; ++o) {
    for (std::int64_t c = 0; c < layer.in; ++c) {
      for (std::int64_t y = 0; y < layer.kernel; ++y) {
        for (std::int64_t x = 0; x < layer.kernel; ++x) visit(o, c, y, x);
      }
    }
  }
}

/// What the layer makes of such an image; its channels are padded to kPad.
ImageShape output_of(const Layer& layer, const ImageShape& in);

/// Calls visit(first, count) for the lines of such outputs, so many at a time that the derivative by them,
/// four bytes a number, stays in the first cache while all places of a kernel are gone through.
template <class Visit>
void for_blocks_of_lines(const ImageShape& out, Visit&& visit) {
  constexpr std::int64_t kBytes = 28 * 1024;
  const std::int64_t most = std::max<std::int64_t>(1, kBytes / (4 * out.width * out.channels));
  const std::int64_t blocks = (out.height + most - 1) / most;
  for (std::int64_t k = 0, first = 0; k < blocks; ++k) {
    const std::int64_t end = out.height * (k + 1) / blocks;
    visit(first, end - first);
    first = end;
  }
}

/// `Element`: float, or Bfloat16Pair, two rounded numbers whose products are added as floats. What are
/// pairs:
///
///   forward, input gradient   neighbours: a sum runs over the channels of a patch or an output, which
///                             lie beside each other
///   weight gradient           the same number of two images: a sum runs over the outputs of both, so
///                             that each is read as floats are
template <class Element>
class ConvolutionOf {
 public:
  /// `layer` reads images of `in`, whose channels may be padded beyond the layer's own; input_gradient()
  /// needs a multiple of kPad. The layer takes `scale` times the image: weights are scaled before they
  /// are rounded, so that pairs can take bytes as they are. Of pairs, a patch's line and a line of `in`
  /// have even numbers of channels.
  ConvolutionOf(const Layer& layer, const ImageShape& in, const MlpKernels& kernels,
                float scale = 1.0F);

  const Layer& layer() const noexcept { return layer_; }
  const ImageShape& in() const noexcept { return in_; }
  const ImageShape& out() const noexcept { return out_; }

  /// Takes parameters (torch's layouts, [out][in][kernel][kernel] and [out]) for forward.
  void pack_forward(std::span<const float> weight, std::span<const float> bias) noexcept;
  /// The same for input_gradient().
  void pack_backward(std::span<const float> weight) noexcept;

  /// max(convolution + bias, 0) of one image.
  void forward(const Element* in, float* out) const noexcept;

  /// Floats of a gradient by the parameters as add_gradient() makes it.
  std::int64_t gradient_size() const noexcept { return (patch() + 1) * out_.channels; }
  /// Adds the share of one image, or of two, which are pairs of both. `delta`: the loss's derivative by
  /// the sums, before ReLU.
  void add_gradient(const Element* in, const Element* delta, float* gradient) const noexcept;
  /// Such a gradient in torch's layouts.
  void unpack_gradient(const float* gradient, std::span<float> weight,
                       std::span<float> bias) const noexcept;

  /// Elements that input_gradient() copies the derivative to. They have to be zero at first, and nobody
  /// else writes there.
  std::int64_t bordered_size() const noexcept {
    return out_.height * bordered_width() * out_.channels / kNumbers;
  }
  /// Overwrites `d_in` with the derivative by the input; `delta` is of one image.
  void input_gradient(const Element* delta, Element* bordered, float* d_in) const noexcept;

 private:
  /// Numbers of an element.
  static constexpr std::int64_t kNumbers = std::is_same_v<Element, Bfloat16Pair> ? 2 : 1;

  /// Numbers that an output reads.
  std::int64_t patch() const noexcept { return layer_.kernel * run(); }
  /// Those that lie beside each other.
  std::int64_t run() const noexcept { return layer_.kernel * in_.channels; }

  /// Inputs from line `y` and place `x` on, every stride-th of both: the same places of the kernel read
  /// them, from outputs that lie beside each other.
  struct Phase {
    std::int64_t y, x;
    std::int64_t width;               // inputs of a line
    std::int64_t kernel_y, kernel_x;  // places of the kernel
    std::int64_t weights;             // where they begin in backward_
  };
  static std::vector<Phase> phases_of(const Layer& layer, const ImageShape& in,
                                      const ImageShape& out);
  void lines_of_input_gradient(const Phase& phase, std::int64_t first, std::int64_t last,
                               const Element* bordered, float* d_in) const noexcept;
  /// Outputs that may read an input are on so many lines at most, beside each other.
  std::int64_t reach() const noexcept { return (layer_.kernel - 1) / layer_.stride + 1; }
  std::int64_t bordered_width() const noexcept { return (in_.width - 1) / layer_.stride + reach(); }

  Layer layer_;
  ImageShape in_, out_;
  std::vector<Phase> phases_;
  const MlpKernels& kernels_;
  float scale_;
  Aligned<Element>
      forward_;  // panels over the outputs' channels: [panel][patch / kNumbers][kPanel]
  Aligned<Element>
      backward_;  // for each phase panels over the inputs' channels: [panel][kernel_y][kernel_x]
                  // [padded out / kNumbers][kPanel], the last place of the kernel first
  AlignedFloats bias_;  // [padded out]
};

using Convolution = ConvolutionOf<float>;
using Bfloat16Convolution = ConvolutionOf<Bfloat16Pair>;

extern template class ConvolutionOf<float>;
extern template class ConvolutionOf<Bfloat16Pair>;

/// Floats of the gradient of them all, one after the other.
template <class Element>
std::int64_t gradient_size_of(const std::vector<ConvolutionOf<Element>>& convolutions) noexcept {
  std::int64_t size = 0;
  for (const auto& c : convolutions) size += c.gradient_size();
  return size;
}

}  // namespace shoal::learn
