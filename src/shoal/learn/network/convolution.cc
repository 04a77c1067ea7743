#include "shoal/learn/network/convolution.h"

#include <algorithm>

#include "shoal/os/error.h"

namespace shoal::learn {
namespace {

template <class Element>
constexpr Element kOnes = 1.0F;
template <>
constexpr Bfloat16Pair kOnes<Bfloat16Pair> = bfloat16_pair(1.0F, 1.0F);

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

// Number `row` of those that the rows of `panel` make, in its column.
void put(float* panel, std::int64_t row, std::int64_t column, float x) {
  panel[row * kPanel + column] = x;
}
void put(Bfloat16Pair* panel, std::int64_t row, std::int64_t column, float x) {
  Bfloat16Pair& pair = panel[row / 2 * kPanel + column];
  const Bfloat16Pair bits = to_bfloat16(x);
  pair = row % 2 == 0 ? (pair & 0xffff0000U) | bits : (pair & 0xffffU) | bits << 16;
}

void multiply(const MlpKernels& kernels, const Product& p) { kernels.product(p); }
void multiply(const MlpKernels& kernels, const PairProduct& p) { kernels.pair_product(p); }

}  // namespace

ImageShape output_of(const Layer& layer, const ImageShape& in) {
  return {padded(layer.out), (in.height - layer.kernel) / layer.stride + 1,
          (in.width - layer.kernel) / layer.stride + 1};
}

template <class Element>
ConvolutionOf<Element>::ConvolutionOf(const Layer& layer, const ImageShape& in,
                                      const MlpKernels& kernels, float scale)
    : layer_(layer),
      in_(in),
      out_(output_of(layer, in)),
      kernels_(kernels),
      scale_(scale),
      forward_(index(panels(out_.channels) * patch() / kNumbers * kPanel)),
      bias_(index(out_.channels)) {
  SHOAL_CHECK(layer.kernel > 0 && in.channels >= layer.in, "a convolution of such images");
  SHOAL_CHECK(run() % kNumbers == 0 && in.width * in.channels % kNumbers == 0 &&
                  layer.stride * in.channels % kNumbers == 0,
              "pairs that no line and no patch cuts");
}

template <class Element>
void ConvolutionOf<Element>::pack_forward(std::span<const float> weight,
                                          std::span<const float> bias) noexcept {
  const float* from = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    const std::int64_t row = y * run() + x * in_.channels + c;
    put(forward_.data() + o / kPanel * patch() / kNumbers * kPanel, row, o % kPanel,
        scale_ * *from++);
  });
  std::ranges::copy(bias, bias_.data());
}

template <class Element>
void ConvolutionOf<Element>::pack_backward(std::span<const float> weight) noexcept {
  const std::int64_t width = panels(in_.channels);
  const std::int64_t rows = out_.channels / kNumbers;
  backward_.room(layer_.kernel * layer_.kernel * width * rows * kPanel);
  const float* from = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    const std::int64_t panel = (y * layer_.kernel + x) * width + c / kPanel;
    put(backward_.data() + panel * rows * kPanel, o, c % kPanel, scale_ * *from++);
  });
}

template <class Element>
void ConvolutionOf<Element>::forward(const Element* in, float* out) const noexcept {
  multiply(kernels_,
           ProductOf<Element>{.m = out_.width,
                              .n = out_.channels,
                              .depth = run() / kNumbers,
                              .a = in,
                              .a_row = layer_.stride * in_.channels / kNumbers,
                              .b = forward_.data(),
                              .b_row = kPanel,
                              .c = out,
                              .c_row = out_.channels,
                              .epilogue = Epilogue::kBiasRelu,
                              .bias = bias_.data(),
                              .segments = layer_.kernel,
                              .a_segment = in_.width * in_.channels / kNumbers,
                              .b_panel = patch() / kNumbers * kPanel,
                              .groups = out_.height,
                              .a_group = layer_.stride * in_.width * in_.channels / kNumbers,
                              .c_group = out_.width * out_.channels});
}

template <class Element>
void ConvolutionOf<Element>::add_gradient(const Element* in, const Element* delta,
                                          float* gradient) const noexcept {
  const std::int64_t line = in_.width * in_.channels;
  for_blocks_of_lines(out_, [&](std::int64_t first, std::int64_t lines) {
    multiply(kernels_, ProductOf<Element>{.m = run(),
                                          .n = out_.channels,
                                          .depth = out_.width,
                                          .a = in + first * layer_.stride * line,
                                          .a_row = 1,
                                          .a_step = layer_.stride * in_.channels,
                                          .b = delta + first * out_.width * out_.channels,
                                          .b_row = out_.channels,
                                          .c = gradient,
                                          .c_row = out_.channels,
                                          .segments = lines,
                                          .a_segment = layer_.stride * line,
                                          .groups = layer_.kernel,
                                          .a_group = line,
                                          .c_group = run() * out_.channels,
                                          .accumulate = true});
  });
  multiply(kernels_, ProductOf<Element>{.m = 1,
                                        .n = out_.channels,
                                        .depth = out_.pixels(),
                                        .a = &kOnes<Element>,
                                        .a_step = 0,
                                        .b = delta,
                                        .b_row = out_.channels,
                                        .c = gradient + patch() * out_.channels,
                                        .accumulate = true});
}

template <class Element>
void ConvolutionOf<Element>::unpack_gradient(const float* gradient, std::span<float> weight,
                                             std::span<float> bias) const noexcept {
  float* to = weight.data();
  for_each_weight(layer_, [&](std::int64_t o, std::int64_t c, std::int64_t y, std::int64_t x) {
    *to++ = scale_ * gradient[(y * run() + x * in_.channels + c) * out_.channels + o];
  });
  std::copy_n(gradient + patch() * out_.channels, bias.size(), bias.begin());
}

template <class Element>
void ConvolutionOf<Element>::input_gradient(const Element* delta, float* d_in) const noexcept {
  std::fill_n(d_in, in_.size(), 0.0F);
  const std::int64_t width = panels(in_.channels) * out_.channels / kNumbers * kPanel;
  for (std::int64_t y = 0; y < layer_.kernel; ++y) {
    for (std::int64_t x = 0; x < layer_.kernel; ++x) {
      multiply(kernels_, ProductOf<Element>{.m = out_.width,
                                            .n = in_.channels,
                                            .depth = out_.channels / kNumbers,
                                            .a = delta,
                                            .a_row = out_.channels / kNumbers,
                                            .b = backward_.data() + (y * layer_.kernel + x) * width,
                                            .b_row = kPanel,
                                            .c = d_in + (y * in_.width + x) * in_.channels,
                                            .c_row = layer_.stride * in_.channels,
                                            .b_panel = out_.channels / kNumbers * kPanel,
                                            .groups = out_.height,
                                            .a_group = out_.width * out_.channels / kNumbers,
                                            .c_group = layer_.stride * in_.width * in_.channels,
                                            .accumulate = true});
    }
  }
}

template class ConvolutionOf<float>;
template class ConvolutionOf<Bfloat16Pair>;

}  // namespace shoal::learn
